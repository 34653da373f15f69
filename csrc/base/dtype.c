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

static float rounded(bw_dtype dtype, float value) {
    switch (dtype) {
        case BW_TF32: return bw_float_to_tf32(value);
        case BW_FP16: return bw_fp16_to_float(bw_float_to_fp16(value));
        case BW_BF16: return bw_bf16_to_float(bw_float_to_bf16(value));
        default: return value;
    }
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

void bw_input_doubles(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, double *out) {
    for (int64_t i = 0; i < count; i++) out[i] = rounded(dtype, bw_input_value(key, (uint64_t)(first + i)));
}
