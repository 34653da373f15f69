#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/convert.h"
#include "base/input.h"

static const bw_dtype_info table[BW_DTYPE_COUNT] = {
#define BW_DTYPE_ROW(id, name, bits, elems, bytes, significand, kind, result, text) \
    [BW_##id] = {name, bits, elems, bytes, significand, BW_KIND_##kind, BW_##result, text},
    BW_DTYPES(BW_DTYPE_ROW)
#undef BW_DTYPE_ROW
};

const bw_dtype_info *bw_dtype_get(bw_dtype dtype) {
    return &table[dtype];
}

bw_status bw_dtype_find(const char *name, bw_dtype *out) {
    char allowed[256] = "";
    for (int i = 0; i < BW_DTYPE_COUNT; i++) {
        if (table[i].kind != BW_KIND_FLOAT) continue;
        if (strcmp(table[i].name, name) == 0) {
            *out = (bw_dtype)i;
            return BW_OK;
        }
        size_t used = strlen(allowed);
        if (used) strncat(allowed, ", ", sizeof allowed - used - 1);
        strncat(allowed, table[i].name, sizeof allowed - strlen(allowed) - 1);
    }
    return bw_fail(BW_CODE_INVALID, "unknown precision '%s': allowed are %s", name, allowed);
}

int64_t bw_dtype_bytes(bw_dtype dtype, int64_t elems) {
    const bw_dtype_info *info = &table[dtype];
    bw_checked bytes = bw_mul(bw_num(bw_ceil_div(elems, info->block_elems)), bw_num(info->block_bytes));
    return bytes.overflow ? -1 : bytes.value;
}

double bw_dtype_roundoff(bw_dtype dtype) {
    return ldexp(1.0, -table[dtype].significand_bits - 1);
}

double bw_dtype_half_unit(bw_dtype dtype, double value) {
    const int lowest = dtype == BW_FP16 ? -14 : -126; /* exponent of the smallest normal number */
    int above;
    frexp(value, &above); /* the value's exponent is one less */
    int exponent = value != 0.0 && above - 1 > lowest ? above - 1 : lowest;
    return ldexp(1.0, exponent - table[dtype].significand_bits - 1);
}

/* Whatever the bytes' alignment: callers' buffers need have none. */
double bw_dtype_load(bw_dtype dtype, const void *data, int64_t index) {
    const char *from = (const char *)data + index * table[dtype].block_bytes;
    union {
        float fp32;
        uint16_t half;
        int32_t i32;
        int64_t i64;
    } element;
    memcpy(&element, from, (size_t)table[dtype].block_bytes);
    switch (dtype) {
        case BW_FP32:
        case BW_TF32: return element.fp32;
        case BW_FP16: return bw_fp16_to_float(element.half);
        case BW_BF16: return bw_bf16_to_float(element.half);
        case BW_I32: return element.i32;
        case BW_I64: return (double)element.i64;
        case BW_DTYPE_COUNT: break;
    }
    return NAN;
}

static void store(bw_dtype dtype, float value, int64_t index, void *out) {
    switch (dtype) {
        case BW_FP32: ((float *)out)[index] = value; break;
        case BW_TF32: ((float *)out)[index] = bw_float_to_tf32(value); break;
        case BW_FP16: ((uint16_t *)out)[index] = bw_float_to_fp16(value); break;
        case BW_BF16: ((uint16_t *)out)[index] = bw_float_to_bf16(value); break;
        default: break;
    }
}

static bw_status refuse_index(bw_dtype dtype) {
    if (table[dtype].kind == BW_KIND_FLOAT) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "%s holds integers, not values of a precision", table[dtype].name);
}

bw_status bw_dtype_encode(bw_dtype dtype, const float *values, int64_t count, void *out) {
    BW_TRY(refuse_index(dtype));
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)values + i * (int64_t)sizeof value, sizeof value);
        store(dtype, value, i, out);
    }
    return BW_OK;
}

bw_status bw_dtype_decode(bw_dtype dtype, const void *data, int64_t count, float *out) {
    BW_TRY(refuse_index(dtype));
    for (int64_t i = 0; i < count; i++) out[i] = (float)bw_dtype_load(dtype, data, i);
    return BW_OK;
}

static uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

bw_input_key bw_input_key_make(uint64_t seed, int operand) {
    uint64_t mixed = mix64(mix64(seed) + (uint64_t)operand);
    bw_input_key key = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    return key;
}

void bw_input_fill(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out) {
    for (int64_t i = 0; i < count; i++) store(dtype, bw_input_value(key, (uint64_t)(first + i)), i, out);
}

/* Indices whose upper halves are `high`, rounded to what is left of a float's significand without its last `dropped`
 * bits. Inputs are multiples of 2^-23 no larger than 1, so that FP16's subnormal numbers hold theirs exactly. */
static inline __attribute__((always_inline)) void generate(bw_input_key key, uint32_t high, uint32_t low, int64_t count,
                                                           int dropped, double *out) {
    const uint32_t mask = (1u << dropped) - 1u, half = mask >> 1;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bw_float_bits(bw_input_value_at(key, high, low + (uint32_t)i));
        if (dropped) bits = (bits + half + ((bits >> dropped) & 1u)) & ~mask;
        out[i] = (double)bw_bits_float(bits);
    }
}

static inline __attribute__((always_inline)) void generate_as(bw_dtype dtype, bw_input_key key, uint32_t high,
                                                              uint32_t low, int64_t count, double *out) {
    switch (dtype) {
        case BW_TF32:
        case BW_FP16: generate(key, high, low, count, 13, out); break;
        case BW_BF16: generate(key, high, low, count, 16, out); break;
        default: generate(key, high, low, count, 0, out); break;
    }
}

static void generate_plain(bw_dtype dtype, bw_input_key key, uint32_t high, uint32_t low, int64_t count, double *out) {
    generate_as(dtype, key, high, low, count, out);
}

/* References spend half of their time here, and the baseline of x86-64 multiplies no vectors of integers. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void generate_avx2(bw_dtype dtype, bw_input_key key, uint32_t high, uint32_t low,
                                                          int64_t count, double *out) {
    generate_as(dtype, key, high, low, count, out);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}
#else
#define generate_avx2 generate_plain

static bool has_avx2(void) {
    return false;
}
#endif

void bw_input_doubles(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, double *out) {
    while (count > 0) {
        uint32_t high = (uint32_t)((uint64_t)first >> 32), low = (uint32_t)(uint64_t)first;
        int64_t stretch = bw_min64(count, ((int64_t)1 << 32) - (int64_t)low);
        (has_avx2() ? generate_avx2 : generate_plain)(dtype, key, high, low, stretch, out);
        out += stretch;
        first += stretch;
        count -= stretch;
    }
}
