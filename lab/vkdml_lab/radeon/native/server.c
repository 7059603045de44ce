// The connection to the process that `vkdml radeon` is: it decodes programs, and gets a report of each dispatch. A request is its
// kind, the width of a wave and a length, then bytes.
#include <sys/socket.h>
#include <sys/un.h>
enum { DECODE = 1, REPORT = 2 };
static int connection = -1;
static Program *programs;

static int transfer(void *data, size_t bytes, int sends) {
    for (u8 *at = data; bytes;) {
        const ssize_t done = sends ? send(connection, at, bytes, MSG_NOSIGNAL) : recv(connection, at, bytes, 0);
        if (done <= 0 && errno != EINTR) return 0;
        if (done > 0) at += done, bytes -= done;
    }
    return 1;
}

static int request(u32 kind, u32 wave, void *data, u32 bytes) {
    u32 header[3] = {kind, wave, bytes};
    if (connection < 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", getenv("VKDML_RADEON"));  // abstract
        connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(connection, (struct sockaddr *)&address, (u32)sizeof address.sun_family + 1 + length))
            perror("vkdml radeon: its process is not there");
    }
    return transfer(header, sizeof header, 1) && transfer(data, bytes, 1);
}

static Program *program_at(u64 va, u32 wave) {  // without instructions where it is refused
    const Range *range = range_of(va, 4);
    if (!range) return NULL;
    u8 *code = range->host + (va - range->va);
    const u64 left = range->size - (va - range->va);
    for (Program *p = programs; p; p = p->next)
        if (p->va == va && p->wave == wave && p->bytes <= left && !memcmp(p->code, code, p->bytes)) return p;
    Program *p = calloc(1, sizeof *p);
    static const u32 ends[] = {0xbf9f0000, 0xbf9f0000, 0xbf9f0000, 0xbf9f0000};  // "S_CODE_END", behind the code
    const u8 *end = memmem(code, left, ends, sizeof ends);
    p->next = programs, p->va = va, p->wave = wave, p->bytes = (u32)(end ? end - code : (i64)left);
    p->code = memcpy(malloc(p->bytes), code, p->bytes);
    u32 answer[3];  // its number, how many instructions, and how many vector registers
    if (!request(DECODE, wave, p->code, p->bytes) || !transfer(answer, sizeof answer, 0)) return NULL;
    p->number = answer[0], p->count = answer[1], p->registers = answer[2];
    p->instructions = calloc(p->count + 1, sizeof *p->instructions);
    return transfer(p->instructions, p->count * sizeof *p->instructions, 0) ? programs = p : NULL;
}
