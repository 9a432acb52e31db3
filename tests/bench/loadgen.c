/* Load for a broker: one thread, one epoll, sliding windows, MQTT 3.1.1 on loopback. `native.py` compiles and calls it.
 *
 * Each publisher keeps `window` messages under way and sends the next one as soon as one of them is done: never a whole
 * window at a time. Done means: QoS 1 and 2, the broker has acknowledged it; QoS 0, it has reached every receiver.
 *
 *   loadgen flow      key=value ...   publishers and subscribers; see `setting`
 *   loadgen connect   key=value ...   CONNECTs a second, `publishers` of them at a time
 *   loadgen retained  key=value ...   `publishers` retained topics set, then one subscription to all of them
 *
 * Prints one JSON object: what was sent, acknowledged, delivered and lost, latencies, and the share of a core that this
 * process had while it measured (above 0.7 it may be what is slow). Exit status 1 and a line of text when it fails.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
#endif

enum { PUBLISHER, SUBSCRIBER, STAMP_BYTES = 12, IN_BYTES = 1 << 16, SAMPLES_MAX = 4000000, EVENTS = 512 };
#define QUIET_NS 500000000LL

typedef struct {
    int fd, kind, place, armed;
    uint16_t next_id;
    long sent, done;              /* publisher: messages, and those of them that are finished */
    long received;                /* publisher: deliveries of its messages, over all receivers */
    unsigned char *in, *out;
    size_t in_len, in_cap, out_len, out_at, out_cap;
    char topic[40];
    int dirty;
#ifdef WITH_TLS
    SSL *ssl;
#endif
} Conn;

static struct {
    const char *name;
    long value;
} settings[] = {
    {"port", 1883}, {"publishers", 1}, {"subscribers", 1}, {"qos", 0}, {"window", 1}, {"payload", 64},
    {"pairs", 0},   /* publisher i has subscriber i alone; otherwise every subscriber gets everything */
    {"kept", 0},    /* subscribers have persistent sessions */
    {"away", 0},    /* subscribers have gone before anything is published */
    {"rate", 0},    /* messages a second in all; 0: as fast as windows open */
    {"batch", 0},   /* one write for all that is due; otherwise one for each packet, as client libraries do */
    {"ms", 1000}, {"warm_ms", 300}, {"tls", 0},
    {"pid", 0},     /* of the broker: its processor time while messages were counted is printed, too */
};

static long setting(const char *name) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!strcmp(settings[i].name, name)) return settings[i].value;
    abort();
}

static void fail(const char *form, ...) {
    va_list rest;
    va_start(rest, form);
    vfprintf(stderr, form, rest);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Processor time of the broker so far, all threads, in user and system mode; 0 where the system does not tell. */
static void broker_cpu_s(double *user, double *system) {
    char path[64], text[1024];
    unsigned long ticks[2] = {0, 0};
    snprintf(path, sizeof path, "/proc/%ld/stat", setting("pid"));
    FILE *file = setting("pid") ? fopen(path, "r") : NULL;
    if (file && fgets(text, sizeof text, file) && strrchr(text, ')'))
        sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ticks[0], &ticks[1]);
    if (file) fclose(file);
    *user = ticks[0] / (double)sysconf(_SC_CLK_TCK);
    *system = ticks[1] / (double)sysconf(_SC_CLK_TCK);
}

static int poller;
static Conn *conns, **dirty;
static long number, dirty_number;
static long publishers, subscribers, qos, window, payload, fan, is_batched;
static long total_sent, total_acked, total_delivered, counted_delivered, counted_acked;
static int64_t counted_from, counted_to;
static int is_sending;
static uint32_t *samples;
static long sample_number;
static unsigned char filling[1 << 20];

/* ------------------------------------------------------------------------------------------------- connections */

static void flush(Conn *c);

/* A packet, or its beginning: then the end follows with `is_whole`. */
static void queue(Conn *c, const void *data, size_t size, int is_whole) {
    if (c->out_len + size > c->out_cap) {
        c->out_cap = (c->out_len + size) * 2 + 256;
        c->out = realloc(c->out, c->out_cap);
    }
    memcpy(c->out + c->out_len, data, size);
    c->out_len += size;
    if (is_whole && !is_batched) {
        flush(c);
        return;
    }
    if (!c->dirty) {
        c->dirty = 1;
        dirty[dirty_number++] = c;
    }
}

static void arm(Conn *c, int wants_write) {
    if (c->armed == wants_write) return;
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->armed = wants_write;
}

static void flush(Conn *c) {
    while (c->out_at < c->out_len) {
        ssize_t put = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
        if (put < 0) {
            if (errno != EAGAIN) fail("write: %s", strerror(errno));
            arm(c, 1);
            return;
        }
        c->out_at += put;
    }
    c->out_at = c->out_len = 0;
    arm(c, 0);
}

static void flush_all(void) {
    for (long i = 0; i < dirty_number; i++) {
        dirty[i]->dirty = 0;
        flush(dirty[i]);
    }
    dirty_number = 0;
}

static int open_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(setting("port"))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) fail("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static size_t connect_packet(unsigned char *packet, const char *client, int is_clean) {
    size_t length = strlen(client); /* keep-alive of an hour: rumqttd takes no client without one */
    unsigned char head[] = {0x10, (unsigned char)(12 + length), 0, 4, 'M', 'Q', 'T', 'T', 4, is_clean ? 2 : 0, 14, 16, 0,
                            (unsigned char)length};
    memcpy(packet, head, sizeof head);
    memcpy(packet + sizeof head, client, length);
    return sizeof head + length;
}

static void read_fully(int fd, unsigned char *into, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t part = read(fd, into + got, size - got);
        if (part <= 0) fail("closed by the broker");
        got += part;
    }
}

static void begin(Conn *c, int kind, long place, const char *topic) {
    unsigned char packet[128], answer[5];
    char name[32];
    c->kind = kind;
    c->place = place;
    snprintf(name, sizeof name, "%s%ld", kind == PUBLISHER ? "pub" : "sub", place);
    snprintf(c->topic, sizeof c->topic, "%s", topic);
    c->fd = open_socket();
    size_t size = connect_packet(packet, name, kind == PUBLISHER || !setting("kept"));
    if (write(c->fd, packet, size) != (ssize_t)size) fail("CONNECT was not taken");
    read_fully(c->fd, answer, 4);
    if (answer[3]) fail("CONNECT was refused with %d", answer[3]);
    if (kind == SUBSCRIBER) {
        size_t length = strlen(topic);
        unsigned char head[] = {0x82, (unsigned char)(5 + length), 0, 1, 0, (unsigned char)length};
        memcpy(packet, head, sizeof head);
        memcpy(packet + sizeof head, topic, length);
        packet[sizeof head + length] = qos;
        if (write(c->fd, packet, sizeof head + length + 1) < 0) fail("SUBSCRIBE was not taken");
        read_fully(c->fd, answer, 5);
        if (answer[4] != qos) fail("the subscription got 0x%02x", answer[4]);
    }
    c->in_cap = kind == PUBLISHER ? 4096 : IN_BYTES + payload;
    c->in = malloc(c->in_cap);
}

static void watch(Conn *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

/* ---------------------------------------------------------------------------------------------------- messages */

static size_t length_bytes(unsigned char *at, size_t length) {
    size_t size = 0;
    do {
        at[size] = length % 128 | (length > 127 ? 128 : 0);
        length /= 128;
        size++;
    } while (length);
    return size;
}

static void publish(Conn *c, int flags) {
    unsigned char head[64];
    size_t topic = strlen(c->topic), at = 1;
    uint32_t place = c->place;
    int64_t stamp = now_ns();
    head[0] = 0x30 | qos << 1 | flags;
    at += length_bytes(head + at, 2 + topic + (qos ? 2 : 0) + payload);
    head[at++] = topic >> 8;
    head[at++] = topic;
    memcpy(head + at, c->topic, topic);
    at += topic;
    if (qos) {
        c->next_id = c->next_id == 65535 ? 1 : c->next_id + 1;
        head[at++] = c->next_id >> 8;
        head[at++] = c->next_id;
    }
    memcpy(filling, &place, 4);
    memcpy(filling + 4, &stamp, 8);
    queue(c, head, at, 0);
    queue(c, filling, payload, 1);
    c->sent++;
    total_sent++;
}

/* Send what the window has room for. */
static void refill(Conn *c) {
    if (!is_sending || setting("rate")) return;
    while (c->sent - (qos ? c->done : c->received / fan) < window) publish(c, 0);
}

static void done(Conn *c) {
    c->done++;
    total_acked++;
    int64_t at = now_ns();
    counted_acked += at >= counted_from && at < counted_to;
    refill(c);
}

static void delivered(const unsigned char *body, int64_t at) {
    uint32_t place;
    int64_t stamp;
    memcpy(&place, body, 4);
    memcpy(&stamp, body + 4, 8);
    total_delivered++;
    if (at >= counted_from && at < counted_to) {
        counted_delivered++;
        if (sample_number < SAMPLES_MAX) samples[sample_number++] = (at - stamp) / 1000;
    }
    if (place >= (uint32_t)publishers) fail("a message that nobody sent");
    conns[place].received++;
    if (!qos) refill(&conns[place]);
}

static void packet(Conn *c, const unsigned char *at, const unsigned char *body, size_t length, int64_t now) {
    unsigned char answer[4] = {0, 2, 0, 0};
    int kind = at[0] & 0xf0, level = at[0] >> 1 & 3;
    if (kind == 0x30) {
        size_t head = 2 + (body[0] << 8) + body[1];
        if (level) {
            answer[0] = level == 1 ? 0x40 : 0x50;
            memcpy(answer + 2, body + head, 2);
            queue(c, answer, 4, 1);
            head += 2;
        }
        if (length - head < STAMP_BYTES) fail("a message that is too short");
        delivered(body + head, now);
        return;
    }
    if (length >= 2) memcpy(answer + 2, body, 2);
    if (kind == 0x50) answer[0] = 0x62, queue(c, answer, 4, 1);
    if (kind == 0x60) answer[0] = 0x70, queue(c, answer, 4, 1);
    if (kind == 0x40 || kind == 0x70) done(c);
}

static void on_readable(Conn *c) {
    ssize_t got = read(c->fd, c->in + c->in_len, c->in_cap - c->in_len);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("closed by the broker");
    c->in_len += got;
    int64_t now = now_ns();
    size_t at = 0;
    while (c->in_len - at >= 2) {
        size_t length = 0, head = 1, shift = 0;
        while (head < c->in_len - at) {
            unsigned char one = c->in[at + head++];
            length |= (size_t)(one & 127) << shift;
            shift += 7;
            if (one < 128) {
                shift = 0;
                break;
            }
        }
        if (shift || c->in_len - at < head + length) break;
        packet(c, c->in + at, c->in + at + head, length, now);
        at += head + length;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
}

/* -------------------------------------------------------------------------------------------------- benchmarks */

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t percentile(double share) {
    return sample_number ? samples[(long)((sample_number - 1) * share)] : 0;
}

static void turn(int wait_ms, int timer) {
    struct epoll_event events[EVENTS];
    static long next;
    int ready = epoll_wait(poller, events, EVENTS, wait_ms);
    for (int i = 0; i < ready; i++) {
        if (events[i].data.ptr == NULL) {
            uint64_t ticks = 0;
            if (read(timer, &ticks, 8) != 8) continue;
            while (is_sending && ticks--) publish(&conns[next++ % publishers], 0);
            continue;
        }
        Conn *c = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) flush(c);
        if (events[i].events & ~EPOLLOUT) on_readable(c);
    }
    flush_all();
}

static int start_timer(void) {
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    long pause = 1000000000L / setting("rate");
    struct itimerspec every = {.it_interval = {0, pause}, .it_value = {0, pause}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    timerfd_settime(timer, 0, &every, NULL);
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    return timer;
}

static void make_clients(void) {
    char topic[40];
    for (long i = 0; i < subscribers; i++) {
        if (setting("pairs")) snprintf(topic, sizeof topic, "bench/%05ld", i);
        else snprintf(topic, sizeof topic, publishers == 1 ? "bench/00000" : "bench/+");
        begin(&conns[publishers + i], SUBSCRIBER, i, topic);
        if (setting("away")) {
            if (write(conns[publishers + i].fd, "\xe0\0", 2) != 2) fail("DISCONNECT was not taken");
            close(conns[publishers + i].fd);
        } else watch(&conns[publishers + i]);
    }
    for (long i = 0; i < publishers; i++) {
        snprintf(topic, sizeof topic, "bench/%05ld", i);
        begin(&conns[i], PUBLISHER, i, topic);
        watch(&conns[i]);
    }
}

static void flow(void) {
    int is_away = setting("away");
    is_batched = setting("batch");
    make_clients();
    int64_t begun = now_ns();
    counted_from = begun + setting("warm_ms") * 1000000LL;
    counted_to = counted_from + setting("ms") * 1000000LL;
    is_sending = 1;
    int timer = setting("rate") ? start_timer() : -1;
    for (long i = 0; i < publishers; i++) refill(&conns[i]);
    flush_all();
    double cpu_before = 0, cpu_after = 0, user_before, system_before, user_after, system_after;
    broker_cpu_s(&user_before, &system_before);
    while (now_ns() < counted_to) {
        if (!cpu_before && now_ns() >= counted_from) {
            cpu_before = cpu_s();
            broker_cpu_s(&user_before, &system_before);
        }
        turn(100, timer);
    }
    cpu_after = cpu_s();
    broker_cpu_s(&user_after, &system_after);
    is_sending = 0;
    long wanted = total_sent * fan, before = -1;
    int64_t last = now_ns(); /* until everything has come, or nothing has for half a second */
    while (((!is_away && total_delivered < wanted) || (qos && total_acked < total_sent)) && now_ns() - last < QUIET_NS) {
        turn(100, timer);
        if (total_delivered + total_acked != before) last = now_ns();
        before = total_delivered + total_acked;
    }
    qsort(samples, sample_number, sizeof *samples, by_size);
    double seconds = setting("ms") / 1e3;
    printf("{\"sent\": %ld, \"acknowledged\": %ld, \"delivered\": %ld, \"lost\": %ld, \"delivered_s\": %.1f, "
           "\"acknowledged_s\": %.1f, \"p50_us\": %u, \"p99_us\": %u, \"cpu_share\": %.3f, "
           "\"broker_user_s\": %.2f, \"broker_system_s\": %.2f, \"counted\": %ld}\n",
           total_sent, total_acked, total_delivered, is_away ? 0 : wanted - total_delivered, counted_delivered / seconds,
           counted_acked / seconds, percentile(0.5), percentile(0.99), (cpu_after - cpu_before) / seconds,
           user_after - user_before, system_after - system_before, counted_delivered);
}

#ifdef WITH_TLS
static SSL_CTX *tls_context(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    return context;
}
#endif

/* Connects a second, `publishers` of them under way: TCP, TLS if asked for, CONNECT, CONNACK, close. */
static void connects(void) {
    long made = 0, under_way = 0, next = 0, free_number = 0;
    Conn **unused = calloc(publishers, sizeof *unused);
    int64_t end = 0, begun = now_ns();
    double cpu_before = cpu_s();
#ifdef WITH_TLS
    SSL_CTX *context = setting("tls") ? tls_context() : NULL;
#else
    if (setting("tls")) fail("built without TLS");
#endif
    for (long i = 0; i < publishers; i++) unused[free_number++] = &conns[i];
    end = begun + setting("ms") * 1000000LL;
    while (now_ns() < end) {
        while (free_number) {
            unsigned char packet[64];
            char name[24];
            Conn *c = unused[--free_number];
            c->fd = open_socket();
            snprintf(name, sizeof name, "c%ld", next++);
            size_t size = connect_packet(packet, name, 1);
            watch(c);
            under_way++;
            c->in_len = 0;
#ifdef WITH_TLS
            if (context) {
                c->out_len = size;
                c->out = realloc(c->out, size);
                memcpy(c->out, packet, size);
                c->ssl = SSL_new(context);
                SSL_set_fd(c->ssl, c->fd);
                SSL_set_connect_state(c->ssl);
                SSL_write(c->ssl, c->out, (int)size); /* begins the handshake */
                continue;
            }
#endif
            if (send(c->fd, packet, size, MSG_NOSIGNAL) != (ssize_t)size) fail("CONNECT was not taken");
        }
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poller, events, EVENTS, 100);
        for (int i = 0; i < ready; i++) {
            Conn *c = events[i].data.ptr;
            unsigned char answer[4];
            ssize_t got;
#ifdef WITH_TLS
            if (c->ssl) {
                if (c->out_len && SSL_write(c->ssl, c->out, (int)c->out_len) > 0) c->out_len = 0;
                got = SSL_read(c->ssl, answer, 4);
                if (got <= 0 && SSL_get_error(c->ssl, (int)got) == SSL_ERROR_WANT_READ) continue;
            } else
#endif
                got = read(c->fd, answer, 4);
            if (got != 4 || answer[0] != 0x20 || answer[3]) fail("no CONNACK that accepts");
#ifdef WITH_TLS
            if (c->ssl) SSL_free(c->ssl), c->ssl = NULL;
#endif
            close(c->fd);
            unused[free_number++] = c;
            under_way--;
            made++;
        }
    }
    double seconds = (now_ns() - begun) / 1e9;
    printf("{\"connects_s\": %.1f, \"made\": %ld, \"cpu_share\": %.3f}\n", made / seconds, made,
           (cpu_s() - cpu_before) / seconds);
}

/* One client sets `publishers` retained topics (QoS 1), then another subscribes to all of them. */
static void retained(void) {
    long topics = publishers, asked = qos;
    publishers = subscribers = 1;
    qos = 1; /* what is stored is acknowledged, however it is read */
    Conn *pub = &conns[0], *sub = &conns[1];
    begin(pub, PUBLISHER, 0, "bench/00000");
    watch(pub);
    is_sending = 0;
    int64_t begun = now_ns();
    double cpu_before = cpu_s();
    while (total_acked < topics) {
        while (total_sent < topics && pub->sent - pub->done < window) {
            snprintf(pub->topic, sizeof pub->topic, "bench/%05ld", total_sent);
            publish(pub, 1);
        }
        flush_all();
        turn(100, -1);
    }
    double set_s = (now_ns() - begun) / 1e9;
    qos = asked;
    begun = now_ns();
    begin(sub, SUBSCRIBER, 0, "bench/+");
    watch(sub);
    for (int quiet = 0; total_delivered < topics && quiet < 20; quiet++) {
        long before = total_delivered;
        turn(100, -1);
        if (total_delivered != before) quiet = 0;
    }
    double seconds = (now_ns() - begun) / 1e9;
    printf("{\"set_s\": %.1f, \"delivered_s\": %.1f, \"lost\": %ld, \"cpu_share\": %.3f}\n", topics / set_s,
           total_delivered / seconds, topics - total_delivered, (cpu_s() - cpu_before) / (set_s + seconds));
}

int main(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        size_t at = 0, count = sizeof settings / sizeof *settings;
        if (equals == NULL) fail("%s is not key=value", argv[i]);
        while (at < count && (strncmp(settings[at].name, argv[i], equals - argv[i]) ||
                              settings[at].name[equals - argv[i]])) at++;
        if (at == count) fail("%s is no setting", argv[i]);
        settings[at].value = atol(equals + 1);
    }
    publishers = setting("publishers"), subscribers = setting("subscribers"), qos = setting("qos");
    window = setting("window"), payload = setting("payload");
    fan = setting("pairs") || !subscribers ? 1 : subscribers;
    if (publishers < 1 || payload < STAMP_BYTES || payload > (long)sizeof filling || window < 1 || window > 60000)
        fail("out of bounds: publishers, payload or window");
    number = publishers + subscribers + 2;
    conns = calloc(number, sizeof *conns);
    dirty = calloc(number, sizeof *dirty);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    poller = epoll_create1(0);
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "flow")) flow();
    else if (!strcmp(mode, "connect")) connects();
    else if (!strcmp(mode, "retained")) retained();
    else fail("flow, connect or retained");
    return 0;
}
