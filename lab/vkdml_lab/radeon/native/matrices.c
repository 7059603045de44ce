// "WMMA": a wave multiplies two matrices of 16 x 16 numbers of 16 bits and adds a third one, D = A B + C, of floats. Lane l has a
// row of A, and a column of B, C and D, each of the number l % 16. RDNA 3: a lane has all 16 numbers of A and B, which lanes l,
// l + 16, ... repeat; its register n of C is row n * width / 16 + l / 16. RDNA 4: the lanes share the numbers of A and B, and the
// rows of C, alike.
static int first_row(const Wave *w, int lane) {  // of RDNA 4. Of 64 lanes the second half takes what the first half leaves out
    const int part = lane / 16;
    return w->width == 64 ? 8 * (part & 1) + 4 * (part >> 1) : 8 * part;
}

static float number_of(const Wave *w, const Instruction *i, const Operand *o, int lane, int k) {
    int at = lane, n = k;
    if (settings.rdna == 4) {
        while (k < first_row(w, at) || k >= first_row(w, at) + 2 * o->words) at += 16;
        n -= first_row(w, at);
    }
    const u32 word = w->v[o->reg + n / 2][at] >> 16 * (n & 1) & 0xffff;
    return i->op == OP_v_wmma_f32_16x16x16_bf16 ? float_of(word << 16) : from_half(word);
}

// In what order the hardware adds up is not documented: exactly and rounded once or, inexact, one by one from some product on
static float product_sum(const float *a, const float *b, float c) {
    const int first = settings.inexact ? settings.seed % 16 : 0;
    double sum = c;
    for (int k = 0; k < 16; k++) {
        const int n = (first + k) % 16;
        sum += (double)a[n] * b[n];
        if (settings.inexact) sum = (float)sum;
    }
    return (float)sum;
}

// Vector instructions come one after the other, but a product's result takes longer: one has to stand between it and a product
// that multiplies it
static int is_too_early(const Wave *w, const Operand *o) {
    return w->product_words && o->reg < w->product + w->product_words && w->product < o->reg + o->words;
}

static void multiply_matrices(Wave *w, Instruction *i) {
    const Operand *a = &i->source[0], *b = &i->source[1], *c = &i->source[2];
    float row[16][16], column[16][16];
    u32 result[8][MOST_LANES];
    if (exec_of(w) != ALL_LANES) found(REFUSED, i, exec_of(w));  // it computes in all lanes
    for (const Operand *o = a; o <= c; o++) {
        if (o->kind == VECTOR) check_vector(w, i, o->reg, o->words);
        if (o < c && is_too_early(w, o)) found(EARLY_PRODUCT, i, o->reg);
    }
    for (const Operand *o = a; settings.rdna < 4 && o <= b; o++)
        for (int n = 0; n < o->words; n++)
            for (int l = 16; l < w->width; l++)
                if (w->v[o->reg + n][l] != w->v[o->reg + n][l % 16]) found(UNLIKE_LANES, i, l);
    for (int l = 0; l < 16; l++)
        for (int k = 0; k < 16; k++) row[l][k] = number_of(w, i, a, l, k), column[l][k] = number_of(w, i, b, l, k);
    for (int n = 0; n < i->to.words; n++)
        for (int l = 0; l < w->width; l++) {
            const int r = settings.rdna == 4 ? first_row(w, l) + n : n * w->width / 16 + l / 16;
            const float before = float_of(c->kind == VECTOR ? w->v[c->reg + n][l] : (u32)read_scalar(w, i, c));
            result[n][l] = word_of(product_sum(row[r], column[l % 16], before));
        }
    for (int n = 0; n < i->to.words; n++) write_vector(w, i, i->to.reg + n, result[n]);
    w->product = i->to.reg, w->product_words = i->to.words;
}
