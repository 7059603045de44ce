"""Tables of the emulated instructions: each one's name, and a C expression for its result. The emulator refuses all others.

The source is AMD's "RDNA3 Instruction Set Architecture Reference Guide", chapter "Instructions". Comments name its sections. In
an expression, S0, S1 and S2 are the sources as 32-bit words, I0 to I2 as signed integers, F0 to F2 as floats, and Q0 to Q2 as
64-bit words. D is the destination. Its old word is D in vector instructions, and OLD in scalar ones. SCC is the scalar
condition code. BIT is the lane's bit of the third source.
"""

from __future__ import annotations

_RELATIONS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ge": ">="}

# "VOP1 Instructions", "VOP2 Instructions", "VOP3 & VOP3SD Instructions": one word for each lane
VECTOR = {
    "v_mov_b32": "S0", "v_not_b32": "~S0", "v_bfrev_b32": "reversed(S0)",
    "v_and_b32": "S0 & S1", "v_or_b32": "S0 | S1", "v_xor_b32": "S0 ^ S1", "v_xnor_b32": "~(S0 ^ S1)",
    "v_and_or_b32": "(S0 & S1) | S2", "v_or3_b32": "S0 | S1 | S2", "v_xor3_b32": "S0 ^ S1 ^ S2",
    "v_xad_u32": "(S0 ^ S1) + S2", "v_bfi_b32": "(S0 & S1) | (~S0 & S2)",
    "v_cndmask_b32": "BIT ? S1 : S0",
    # Integers
    "v_add_nc_u32": "S0 + S1", "v_sub_nc_u32": "S0 - S1", "v_subrev_nc_u32": "S1 - S0", "v_add3_u32": "S0 + S1 + S2",
    "v_add_nc_i32": "S0 + S1", "v_sub_nc_i32": "S0 - S1",
    "v_add_nc_u32 clamp": "S0 + S1 < S0 ? ~0u : S0 + S1", "v_sub_nc_u32 clamp": "S1 > S0 ? 0 : S0 - S1",
    "v_mul_lo_u32": "S0 * S1", "v_mul_hi_u32": "(u32)((u64)S0 * S1 >> 32)", "v_mul_hi_i32": "(u32)((i64)I0 * I1 >> 32)",
    "v_mul_u32_u24": "low24(S0) * low24(S1)", "v_mad_u32_u24": "low24(S0) * low24(S1) + S2",
    "v_mul_i32_i24": "(u32)((i64)signed24(S0) * signed24(S1))", "v_mad_i32_i24": "(u32)((i64)signed24(S0) * signed24(S1)) + S2",
    "v_min_u32": "least(S0, S1)", "v_max_u32": "most(S0, S1)",
    "v_min_i32": "I0 < I1 ? S0 : S1", "v_max_i32": "I0 > I1 ? S0 : S1",
    "v_min3_u32": "least(least(S0, S1), S2)", "v_max3_u32": "most(most(S0, S1), S2)",
    "v_maxmin_u32": "least(most(S0, S1), S2)", "v_minmax_u32": "most(least(S0, S1), S2)",
    # Shifts and parts of words
    "v_lshlrev_b32": "S1 << (S0 & 31)", "v_lshrrev_b32": "S1 >> (S0 & 31)", "v_ashrrev_i32": "(u32)(I1 >> (S0 & 31))",
    "v_lshl_add_u32": "(S0 << (S1 & 31)) + S2", "v_add_lshl_u32": "(S0 + S1) << (S2 & 31)",
    "v_lshl_or_b32": "(S0 << (S1 & 31)) | S2", "v_alignbit_b32": "(u32)(((u64)S0 << 32 | S1) >> (S2 & 31))",
    "v_bfe_u32": "S0 >> (S1 & 31) & ((1u << (S2 & 31)) - 1)", "v_bfe_i32": "signed_field(S0, S1 & 31, S2 & 31)",
    "v_perm_b32": "permuted(S0, S1, S2)", "v_pack_b32_f16": "(S0 & 0xffff) | S1 << 16", "v_mov_b16": "S0",
    # Floats
    "v_add_f32": "word_of(F0 + F1)", "v_sub_f32": "word_of(F0 - F1)",
    "v_subrev_f32": "word_of(F1 - F0)", "v_mul_f32": "word_of(F0 * F1)",
    "v_fma_f32": "word_of(fmaf(F0, F1, F2))", "v_fmac_f32": "word_of(fmaf(F0, F1, float_of(D)))",
    "v_fmaak_f32": "word_of(fmaf(F0, F1, F2))", "v_fmamk_f32": "word_of(fmaf(F0, F1, F2))",
    "v_max_f32": "word_of(larger(F0, F1))", "v_min_f32": "word_of(smaller(F0, F1))",
    "v_max3_f32": "word_of(larger(larger(F0, F1), F2))", "v_min3_f32": "word_of(smaller(smaller(F0, F1), F2))",
    "v_maxmin_f32": "word_of(smaller(larger(F0, F1), F2))", "v_minmax_f32": "word_of(larger(smaller(F0, F1), F2))",
    "v_med3_f32": "word_of(median(F0, F1, F2))", "v_ldexp_f32": "word_of(ldexpf(F0, I1))",
    "v_rndne_f32": "word_of(rintf(F0))", "v_floor_f32": "word_of(floorf(F0))", "v_ceil_f32": "word_of(ceilf(F0))",
    "v_trunc_f32": "word_of(truncf(F0))", "v_fract_f32": "word_of(fraction(F0))",
    # Functions, for which the guide allows an error of 1 ulp
    "v_rcp_f32": "word_of(inexact(1.0 / F0, S0))", "v_rcp_iflag_f32": "word_of(inexact(1.0 / F0, S0))",
    "v_rsq_f32": "word_of(inexact(1.0 / sqrt(F0), S0))", "v_sqrt_f32": "word_of(inexact(sqrt(F0), S0))",
    "v_exp_f32": "word_of(inexact(exp2(F0), S0))", "v_log_f32": "word_of(inexact(log2(F0), S0))",
    # "VOP3P Instructions"
    **dict.fromkeys(["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"], "word_of(fmaf(F0, F1, F2))"),
    # How many of the lower lanes have their bit set
    "v_mbcnt_lo_u32_b32": "S1 + __builtin_popcount(S0 & (u32)((1ull << l) - 1))",
    "v_mbcnt_hi_u32_b32": "S1 + __builtin_popcount(S0 & (u32)(((1ull << l) - 1) >> 32))",
    # Conversions
    "v_cvt_f32_u32": "word_of((float)S0)", "v_cvt_f32_i32": "word_of((float)I0)", "v_cvt_u32_f32": "to_unsigned(F0)",
    "v_cvt_i32_f32": "to_signed(F0)", "v_cvt_f32_f16": "word_of(F0)", "v_cvt_f16_f32": "word_of(F0)",
    "v_cvt_pk_rtz_f16_f32": "to_half_toward_zero(F0) | to_half_toward_zero(F1) << 16",
}

# "VOP3 & VOP3SD Instructions" with 64 bits
WIDE = {
    "v_lshlrev_b64": "Q1 << (Q0 & 63)", "v_lshrrev_b64": "Q1 >> (Q0 & 63)", "v_ashrrev_i64": "(u64)((i64)Q1 >> (Q0 & 63))",
    "v_mad_u64_u32": "(Q0 & LOW32) * (Q1 & LOW32) + Q2",
}

# "VOP2 Instructions", "VOP3 & VOP3SD Instructions" with carry: bit 32 of the sum or difference is the carry
CARRYING = {
    "v_add_co_u32": "(u64)S0 + S1", "v_sub_co_u32": "(u64)S0 - S1", "v_subrev_co_u32": "(u64)S1 - S0",
    "v_add_co_ci_u32": "(u64)S0 + S1 + BIT", "v_sub_co_ci_u32": "(u64)S0 - S1 - BIT",
    "v_subrev_co_ci_u32": "(u64)S1 - S0 - BIT",
}

# "VOPC Instructions": one bit for each lane
_COMPARED = {
    **{f"{name}_{kind}": f"{sources} {sign} {sources[:-1]}1" for name, sign in {**_RELATIONS, "ne": "!="}.items()
       for kind, sources in (("u32", "S0"), ("i32", "I0"))},
    **{f"{name}_f32": f"F0 {sign} F1" for name, sign in _RELATIONS.items()},
    **{f"n{name}_f32": f"!(F0 {sign} F1)" for name, sign in _RELATIONS.items() if name != "eq"},
    "neq_f32": "F0 != F1", "lg_f32": "F0 < F1 || F0 > F1", "nlg_f32": "!(F0 < F1 || F0 > F1)",
    "u_f32": "F0 != F0 || F1 != F1", "o_f32": "F0 == F0 && F1 == F1",
    "class_f32": "S1 >> class_of(S0, 8, 23) & 1", "class_f16": "S1 >> class_of(S0, 5, 10) & 1",
}
COMPARING = {f"v_{prefix}_{name}": text for prefix in ("cmp", "cmpx") for name, text in _COMPARED.items()}

# RDNA 4's scalar float instructions, with the vector instructions of the same meaning
OF_FLOATS = {**{f"s_{name}": f"v_{name}" for name in (
    "add_f32", "sub_f32", "mul_f32", "min_f32", "max_f32", "rndne_f32", "floor_f32", "ceil_f32", "trunc_f32", "cvt_f32_u32",
    "cvt_f32_i32", "cvt_u32_f32", "cvt_i32_f32")},
    **{f"v_s_{name}_f32": f"v_{name}_f32" for name in ("rcp", "rsq", "sqrt", "exp", "log")}}

# "SOP1 Instructions", "SOP2 Instructions", "SOPC Instructions", "SOPK Instructions"
_BITWISE = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "nand": "~({0} & {1})", "nor": "~({0} | {1})",
            "xnor": "~({0} ^ {1})", "and_not1": "{0} & ~{1}", "or_not1": "{0} | ~{1}"}
_WITH_EXEC = {**_BITWISE, "and_not0": "~{0} & {1}", "or_not0": "~{0} | {1}"}
SCALAR = {
    "s_mov_b32": "D = S0", "s_mov_b64": "D = Q0", "s_movk_i32": "D = signed16(S0)",
    "s_cmov_b32": "D = SCC ? S0 : OLD", "s_cmov_b64": "D = SCC ? Q0 : OLD", "s_cmovk_i32": "D = SCC ? signed16(S0) : OLD",
    "s_cselect_b32": "D = SCC ? S0 : S1", "s_cselect_b64": "D = SCC ? Q0 : Q1",
    "s_not_b32": "D = ~S0; SCC = (u32)D != 0", "s_not_b64": "D = ~Q0; SCC = D != 0",
    # Integers
    "s_add_u32": "D = (u64)S0 + S1; SCC = D >> 32", "s_addc_u32": "D = (u64)S0 + S1 + SCC; SCC = D >> 32",
    "s_sub_u32": "D = S0 - S1; SCC = S1 > S0", "s_subb_u32": "D = S0 - S1 - SCC; SCC = (u64)S1 + SCC > S0",
    "s_add_i32": "D = S0 + S1; SCC = overflows((i64)I0 + I1)", "s_sub_i32": "D = S0 - S1; SCC = overflows((i64)I0 - I1)",
    "s_addk_i32": "D = (u32)OLD + signed16(S0); SCC = overflows((i64)(i32)OLD + (i32)signed16(S0))",
    "s_mulk_i32": "D = (u32)OLD * signed16(S0)",
    "s_mul_i32": "D = S0 * S1", "s_mul_hi_u32": "D = (u64)S0 * S1 >> 32", "s_mul_hi_i32": "D = (u32)((i64)I0 * I1 >> 32)",
    "s_abs_i32": "D = I0 < 0 ? -S0 : S0; SCC = (u32)D != 0",
    "s_absdiff_i32": "D = S0 - S1; D = (i32)D < 0 ? -(u32)D : D; SCC = (u32)D != 0",
    "s_sext_i32_i8": "D = (u32)(i8)S0", "s_sext_i32_i16": "D = signed16(S0)",
    "s_min_u32": "SCC = S0 < S1; D = SCC ? S0 : S1", "s_max_u32": "SCC = S0 > S1; D = SCC ? S0 : S1",
    "s_min_i32": "SCC = I0 < I1; D = SCC ? S0 : S1", "s_max_i32": "SCC = I0 > I1; D = SCC ? S0 : S1",
    **{f"s_lshl{bits}_add_u32": f"D = ((u64)S0 << {bits}) + S1; SCC = D >> 32 != 0" for bits in range(1, 5)},
    # Bits
    "s_brev_b32": "D = reversed(S0)", "s_bitreplicate_b64_b32": "D = replicated(S0)",
    "s_ctz_i32_b32": "D = S0 ? __builtin_ctz(S0) : ~0u", "s_ctz_i32_b64": "D = Q0 ? __builtin_ctzll(Q0) : ~0u",
    "s_clz_i32_u32": "D = S0 ? __builtin_clz(S0) : ~0u", "s_clz_i32_u64": "D = Q0 ? __builtin_clzll(Q0) : ~0u",
    "s_bcnt1_i32_b32": "D = __builtin_popcount(S0); SCC = D != 0",
    "s_bcnt1_i32_b64": "D = __builtin_popcountll(Q0); SCC = D != 0",
    "s_bitset0_b32": "D = OLD & ~(1u << (S0 & 31))", "s_bitset1_b32": "D = OLD | 1u << (S0 & 31)",
    "s_bitcmp0_b32": "SCC = !(S0 >> (S1 & 31) & 1)", "s_bitcmp1_b32": "SCC = S0 >> (S1 & 31) & 1",
    "s_bfm_b32": "D = ((1u << (S0 & 31)) - 1) << (S1 & 31)", "s_bfm_b64": "D = ((1ull << (Q0 & 63)) - 1) << (Q1 & 63)",
    "s_bfe_u32": "D = field(S0, S1 & 31, S1 >> 16 & 127); SCC = D != 0",
    "s_bfe_i32": "D = signed_field(S0, S1 & 31, S1 >> 16 & 127); SCC = D != 0",
    "s_pack_ll_b32_b16": "D = (S0 & 0xffff) | S1 << 16", "s_pack_lh_b32_b16": "D = (S0 & 0xffff) | (S1 & 0xffff0000)",
    "s_pack_hh_b32_b16": "D = S0 >> 16 | (S1 & 0xffff0000)",
    "s_lshl_b32": "D = S0 << (S1 & 31); SCC = (u32)D != 0", "s_lshl_b64": "D = Q0 << (S1 & 63); SCC = D != 0",
    "s_lshr_b32": "D = S0 >> (S1 & 31); SCC = D != 0", "s_lshr_b64": "D = Q0 >> (S1 & 63); SCC = D != 0",
    "s_ashr_i32": "D = (u32)(I0 >> (S1 & 31)); SCC = D != 0", "s_ashr_i64": "D = (u64)((i64)Q0 >> (S1 & 63)); SCC = D != 0",
    **{f"s_{name}_b32": f"D = {text.format('S0', 'S1')}; SCC = (u32)D != 0" for name, text in _BITWISE.items()},
    **{f"s_{name}_b64": f"D = {text.format('Q0', 'Q1')}; SCC = D != 0" for name, text in _BITWISE.items()},
    # These change exec. The destination gets the old exec or, with "wrexec" in the name, the new one
    **{f"s_{name}_{way}_b{bits}": f"u64 old = exec_of(w), new = ({text.format('Q0', 'old')}) & ALL_LANES; "
       f"D = {'old' if way == 'saveexec' else 'new'}; SCC = new != 0; set_exec(w, new)"
       for bits in (32, 64) for way in ("saveexec", "wrexec") for name, text in _WITH_EXEC.items()},
    **{name: f"D = {VECTOR[of]}" for name, of in OF_FLOATS.items()},
    **{f"s_cmp_{name}": f"SCC = {text}" for name, text in _COMPARED.items() if name.endswith("f32") and name != "class_f32"},
    # Comparisons
    **{f"s_cmp_{name}_{kind}": f"SCC = {source}0 {sign} {source}1" for name, sign in {**_RELATIONS, "lg": "!="}.items()
       for kind, source in (("u32", "S"), ("i32", "I"), ("u64", "Q"))},
    **{f"s_cmpk_{name}_i32": f"SCC = I0 {sign} (i32)signed16(S1)" for name, sign in {**_RELATIONS, "lg": "!="}.items()},
    **{f"s_cmpk_{name}_u32": f"SCC = S0 {sign} (S1 & 0xffff)" for name, sign in {**_RELATIONS, "lg": "!="}.items()},
}

# Atomics ("LDS & GDS Instructions", "MUBUF Instructions"): the new value V, from the old one O and the operand X
ATOMIC = {"add_u32": "O + X", "sub_u32": "O - X", "and_b32": "O & X", "or_b32": "O | X", "xor_b32": "O ^ X", "swap_b32": "X",
          "min_u32": "least(O, X)", "max_u32": "most(O, X)"}

# Branches ("SOPP Instructions"): the condition
BRANCH = {"s_branch": "1", "s_cbranch_scc0": "!w->scc", "s_cbranch_scc1": "w->scc", "s_cbranch_vccz": "is_vcc_zero",
          "s_cbranch_vccnz": "!is_vcc_zero", "s_cbranch_execz": "is_exec_zero", "s_cbranch_execnz": "!is_exec_zero"}

# Instructions across lanes or to memory, and the other "SOPP Instructions": native/waves.c and native/memory.c implement them
_CONTROL = ["s_endpgm", "s_barrier", "s_waitcnt", "s_waitcnt_depctr", "s_getpc_b64", "buffer_gl0_inv", "buffer_gl1_inv"]
_LANES = ["v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_swap_b32", "v_nop"]
_MATRICES = ["v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_bf16"]  # native/matrices.c
MEMORY = ["scalar_load", "scratch_load", "scratch_store",
          *(f"{space}_{way}" for space in ("buffer", "global", "ds") for way in ("load", "store", "atomic"))]
# "SOPP Instructions" without effect on results: hints and pauses
IGNORED = {"s_nop", "s_clause", "s_delay_alu", "s_sleep", "s_setprio", "s_inst_prefetch",
           "s_set_inst_prefetch_distance", "s_code_end", "s_icache_inv", "s_barrier_wait"}

_SHAPES: dict[str, dict[str, str]] = {
    "VECTOR": VECTOR, "WIDE": WIDE, "CARRYING": CARRYING, "COMPARING": COMPARING, "SCALAR": SCALAR,
    "BRANCH": BRANCH, "OTHER": dict.fromkeys([*_CONTROL, *_LANES, *_MATRICES, *MEMORY, "nothing"], "")}
NUMBERS = {name: number for number, name in enumerate(name for table in _SHAPES.values() for name in table)}
NAMES = list(NUMBERS)
ATOMICS = {name: number for number, name in enumerate(ATOMIC)}


def c_text() -> dict[str, str]:
    """Return the C files generated from the tables, by name: enumerations of the instructions, and cases of switches."""
    last = {f"LAST_{shape}": max(NUMBERS[name] for name in table) for shape, table in _SHAPES.items()}
    numbers = [f"OP_{name.replace(' ', '_')} = {number}" for name, number in NUMBERS.items()]
    numbers += [f"{name} = {number}" for name, number in last.items()] + [f"ATOMIC_{name} = {n}" for name, n in ATOMICS.items()]

    def cases(table: dict[str, str], line: str) -> str:
        return "".join(f"case OP_{name.replace(' ', '_')}: {line.format(text)}; break;\n" for name, text in table.items())

    return {
        "numbers.h": f"enum {{ {', '.join(numbers)} }};\n",
        "vector.inc": cases(VECTOR, "EACH_LANE {{ WORDS result[l] = {}; }}")
        + cases(WIDE, "EACH_LANE {{ WIDE(0) WIDE(1) WIDE(2) const u64 to = {}; result[l] = (u32)to; high[l] = to >> 32; }}")
        + cases(CARRYING, "EACH_LANE {{ WORDS const u64 to = {}; result[l] = (u32)to; bits |= (to >> 32 & 1) << l; }}")
        + cases(COMPARING, "EACH_LANE {{ WORDS bits |= (u64)(({}) != 0) << l; }}"),
        "scalar.inc": cases(SCALAR, "{{ {}; }}"),
        "branch.inc": "".join(f"case OP_{name}: return {text};\n" for name, text in BRANCH.items()),
        "atomic.inc": "".join(f"case {number}: return {ATOMIC[name]};\n" for name, number in ATOMICS.items()),
    }
