// The connection to the process that `vkdml radeon` is: it decodes programs, and hears of each dispatch. A request is its kind, a
// number and its length, then bytes.
#include <sys/socket.h>
#include <sys/un.h>

enum { DECODE = 1, REPORT = 2 };
typedef struct { u32 kind, wave, bytes; } Request;
static int connection = -1;

static int exchange(int fd, void *data, size_t bytes, int writes)
{
    for (u8 *at = data; bytes;) {
        const ssize_t done = writes ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        at += done, bytes -= done;
    }
    return 1;
}

static int request(u32 kind, u32 wave, void *data, u32 bytes)
{
    Request header = {kind, wave, bytes};
    if (connection < 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        strncpy(address.sun_path, getenv("VKDML_RADEON"), sizeof address.sun_path - 1);
        connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(connection, (struct sockaddr *)&address, sizeof address)) {
            perror("vkdml radeon: its process is not there");
            close(connection);
            connection = -1;
            return 0;
        }
    }
    return exchange(connection, &header, sizeof header, 1) && exchange(connection, data, bytes, 1);
}

static Program *programs;

// The code's length: behind it the driver puts words of "S_CODE_END"
static u32 code_bytes(const u32 *code, u64 most)
{
    enum { CODE_END = 0xbf9f0000, IN_A_ROW = 4 };
    u32 ends = 0;
    for (u64 n = 0; n < most / 4; n++) {
        ends = code[n] == CODE_END ? ends + 1 : 0;
        if (ends == IN_A_ROW) return 4 * (u32)(n + 1 - IN_A_ROW);
    }
    return (u32)most;
}

// The decoded program of the code at an address; NULL where it was refused
static Program *program_at(u64 va, u32 wave)
{
    const Range *range = range_of(va, 4);
    if (!range) return NULL;
    u8 *code = range->host + (va - range->va);
    const u64 left = range->size - (va - range->va);
    for (Program *p = programs; p; p = p->next)
        if (p->va == va && p->wave == wave && p->bytes <= left && !memcmp(p->code, code, p->bytes)) return p->count ? p : NULL;
    Program *p = calloc(1, sizeof *p);
    p->next = programs, p->va = va, p->wave = wave, p->bytes = code_bytes((u32 *)code, left);
    p->code = malloc(p->bytes);
    memcpy(p->code, code, p->bytes);
    u32 answer[2];  // its number, and how many instructions
    if (!request(DECODE, wave, p->code, p->bytes) || !exchange(connection, answer, sizeof answer, 0)) return NULL;
    p->number = answer[0], p->count = answer[1];
    p->instructions = calloc(p->count + 1, sizeof *p->instructions);
    if (!exchange(connection, p->instructions, p->count * sizeof *p->instructions, 0)) return NULL;
    programs = p;
    return p->count ? p : NULL;
}

static u32 most_register(const Program *p)
{
    u32 last = 0;
    for (u32 n = 0; n < p->count; n++) {
        const Instruction *i = &p->instructions[n];
        const Operand *operands[] = {&i->to, &i->to2, &i->source[0], &i->source[1], &i->source[2]};
        for (int k = 0; k < 5; k++)
            if (operands[k]->kind == VECTOR) last = most(last, operands[k]->reg + operands[k]->words - 1);
    }
    return last;
}
