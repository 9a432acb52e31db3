// An identity provider for tests: oidc-provider (MIT), OpenID certified. Arguments: port, address of the console.
// Resources: `urn:veilmq`, the default; `urn:office`, whose tokens are for others; `urn:short`, whose tokens end in a second.
// Clients: `pump-7` and `ann-cli` get access tokens (JWT) for veilmq by their own secret; `console` logs people in by the code flow.
import { createRequire } from "node:module";
const require = createRequire(process.argv[4]);
const { Provider } = await import(require.resolve("oidc-provider"));

const [port, console_] = [Number(process.argv[2]), process.argv[3]];
const issuer = `http://127.0.0.1:${port}`;
const machine = (id) => ({ client_id: id, client_secret: `${id}-secret`, grant_types: ["client_credentials"],
  redirect_uris: [], response_types: [] });
const groups = { "pump-7": ["plant"], visitor: ["guests"], ann: ["operators", "plant"] };
const provider = new Provider(issuer, {
  clients: [machine("pump-7"), machine("visitor"), { client_id: "console", client_secret: "console-secret",
    grant_types: ["authorization_code"], redirect_uris: [`${console_}/login/callback`], response_types: ["code"] }],
  cookies: { keys: ["a secret of tests"] },
  claims: { openid: ["sub", "groups"] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  findAccount: (context, id) => ({ accountId: id, claims: async () => ({ sub: id, groups: groups[id] || [] }) }),
  extraTokenClaims: (context, token) => ({ sub: token.clientId, groups: groups[token.clientId] || [] }),
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => "urn:veilmq",
      getResourceServerInfo: (context, resource) => ({ scope: "mqtt", audience: resource === "urn:office" ? "office" : "veilmq",
        accessTokenFormat: "jwt", accessTokenTTL: resource === "urn:short" ? 1 : 600 }),
    },
  },
});
provider.listen(port, "127.0.0.1", () => process.stdout.write("up\n"));
