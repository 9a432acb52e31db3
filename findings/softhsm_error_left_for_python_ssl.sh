#!/bin/bash
# SoftHSM 2.6.1 (Debian 12), loaded into a Python process by python-pkcs11 0.10.1 (PyPI), leaves an error in OpenSSL's
# queue of errors when it is initialised: it asks for an engine that is not there. SoftHSM and Python's `ssl` share one
# libcrypto. The next call of `ssl` that looks at the queue raises that error as its own: a valid certificate authority
# "cannot be loaded", with NO_SUCH_ENGINE. OpenSSL, ERR_get_error(3): a caller empties the queue before or after a call.
#
# Fetches SoftHSM's library by apt-get download and python-pkcs11 from PyPI into a temporary folder. Python must be built
# with the shared OpenSSL 3 of the system, as Debian's is. Exits 0 while the two behave so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get -q download libsofthsm2=2.6.1-2.1 softhsm2-common=2.6.1-2.1 >/dev/null
for package in *.deb; do dpkg -x "$package" root; done
module=$(find root -name 'libsofthsm2.so' -type f | head -n 1)
mkdir tokens
echo "directories.tokendir = $work/tokens" >softhsm2.conf
python3 -m venv env
env/bin/pip -q install --disable-pip-version-check python-pkcs11==0.10.1
openssl req -x509 -newkey ed25519 -nodes -keyout key.pem -out ca.pem -days 1 -subj /CN=ca 2>/dev/null
cat >load.py <<'PY'
import ssl, sys

authority = ssl.PEM_cert_to_DER_cert(open("ca.pem").read())
ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authority)
print("before:  the authority is loaded")

import pkcs11

library = pkcs11.lib(sys.argv[1])
print(f"loaded:  {library.library_description.strip()} {library.library_version}, {ssl.OPENSSL_VERSION}")
try:
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authority)
except ssl.SSLError as error:
    print(f"after:   {error}")
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authority)
    print("again:   the authority is loaded")
else:
    sys.exit("SoftHSM leaves no error any more")
PY
SOFTHSM2_CONF=softhsm2.conf env/bin/python load.py "$module"
