// One phase of a step, for kernels whose weights stay in private memory.
#include "resident.glsl"

void run_phase(uint phase, uint step)
{
    source = source_slot(phase, h_slot(step));
    ROW_LOOP for (uint r = 0; r < ACTIVE_ROWS; ++r) {
        vec4 sums[UNITS_AT_ONCE];
        multiply_resident(sums, phase, r);
        ROW_LOOP for (uint u = 0; u < UNITS_AT_ONCE; ++u) {
            uint unit = unit_of(u);
            if (UNITS == HIDDEN || unit < HIDDEN) {
                if (HAS_PEEPHOLE != 0) peephole = PICK(resident_peepholes, u);
                finish_phase(phase, step, unit, r, load_gates(step, r, unit), PICK(sums, u));
            }
        }
    }
    phase_barrier();
}
