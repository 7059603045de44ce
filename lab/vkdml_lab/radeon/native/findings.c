// What was seen to be wrong in a dispatch: each kind and place once, with a count.
static Report report;

static void found(const Wave *w, u32 kind, const Instruction *i, u64 detail)
{
    const int pc = i ? i->pc : -1;
    for (u32 n = 0; n < report.found_count; n++)
        if (report.found[n].kind == kind && report.found[n].pc == pc) {
            report.found[n].count++;
            return;
        }
    if (report.found_count < MOST_FOUND)
        report.found[report.found_count++] = (Found){kind, pc, w ? w->group->number : 0, 1, detail};
}
