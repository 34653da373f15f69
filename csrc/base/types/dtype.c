/* Storage types: sizes, rounding errors, and conversion of elements to and from float64. */
#include "base/types/dtype.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/names.h"
#include "base/types/blocks.h"

/* ---- how each type is decoded, encoded and filled ---- */

static float as_float(float value) {
    return value;
}

/* One element a block: `to` makes a number of stored bits, `from` such bits of a float. */
#define DECODE_ELEMENTS(id, bits, to)                                                          \
    static void decode_##id(const void *blocks, int64_t count, double *out) {                  \
        for (int64_t i = 0; i < count; i++) {                                                  \
            bits stored;                                                                       \
            memcpy(&stored, (const char *)blocks + i * (int64_t)sizeof stored, sizeof stored); \
            out[i] = (double)to(stored);                                                       \
        }                                                                                      \
    }

#define ENCODE_ELEMENTS(id, bits, from)                                                     \
    static void encode_##id(const float *values, int64_t count, void *out) {                \
        for (int64_t i = 0; i < count; i++) {                                               \
            float value;                                                                    \
            memcpy(&value, (const char *)values + i * (int64_t)sizeof value, sizeof value); \
            bits stored = from(value);                                                      \
            memcpy((char *)out + i * (int64_t)sizeof stored, &stored, sizeof stored);       \
        }                                                                                   \
    }

#define FILL_VALUES(id, bits, from)                                                    \
    static void fill_##id(bw_input_key key, int64_t first, int64_t count, void *out) { \
        for (int64_t i = 0; i < count; i++) {                                          \
            bits stored = from(bw_input_value(key, (uint64_t)(first + i)));            \
            memcpy((char *)out + i * (int64_t)sizeof stored, &stored, sizeof stored);  \
        }                                                                              \
    }

#define FLOAT_ELEMENTS(id, bits, to, from) \
    DECODE_ELEMENTS(id, bits, to)          \
    ENCODE_ELEMENTS(id, bits, from)        \
    FILL_VALUES(id, bits, from)

FLOAT_ELEMENTS(FP32, float, as_float, as_float)
FLOAT_ELEMENTS(TF32, float, as_float, bw_float_to_tf32)
FLOAT_ELEMENTS(FP16, uint16_t, bw_fp16_to_float, bw_float_to_fp16)
FLOAT_ELEMENTS(BF16, uint16_t, bw_bf16_to_float, bw_float_to_bf16)

/* Of one byte: four of each hashed word, of which `mask` keeps bits. E4M3 and E5M2 lose their highest exponent bit, so
 * that numbers are below 2, and no NaN. */
#define FILL_BYTES(id, mask)                                                           \
    static void fill_##id(bw_input_key key, int64_t first, int64_t count, void *out) { \
        for (int64_t i = 0; i < count; i++) {                                          \
            const uint64_t index = (uint64_t)(first + i);                              \
            const uint32_t hashed = bw_input_bits(key, index / 4);                     \
            ((uint8_t *)out)[i] = (uint8_t)(hashed >> (8 * (index % 4)) & (mask));     \
        }                                                                              \
    }

DECODE_ELEMENTS(FP8_E4M3, uint8_t, bw_fp8_e4m3_to_float)
ENCODE_ELEMENTS(FP8_E4M3, uint8_t, bw_float_to_fp8_e4m3)
FILL_BYTES(FP8_E4M3, 0xbfu)

DECODE_ELEMENTS(FP8_E5M2, uint8_t, bw_fp8_e5m2_to_float)
ENCODE_ELEMENTS(FP8_E5M2, uint8_t, bw_float_to_fp8_e5m2)
FILL_BYTES(FP8_E5M2, 0xbfu)

DECODE_ELEMENTS(INT8, int8_t, )
ENCODE_ELEMENTS(INT8, int8_t, bw_float_to_int8)
FILL_BYTES(INT8, 0xffu)

DECODE_ELEMENTS(E8M0, uint8_t, bw_e8m0_to_float)
ENCODE_ELEMENTS(E8M0, uint8_t, bw_float_to_e8m0)
FILL_BYTES(E8M0, 0x7fu)

/* Of four bits: two in a byte, the first low. */
#define HALF_BYTES(id, to, from)                                                                \
    static void decode_##id(const void *blocks, int64_t count, double *out) {                   \
        for (int64_t i = 0; i < 2 * count; i++) {                                               \
            out[i] = (double)to((uint8_t)(((const uint8_t *)blocks)[i / 2] >> i % 2 * 4 & 15)); \
        }                                                                                       \
    }                                                                                           \
    static void encode_##id(const float *values, int64_t count, void *out) {                    \
        for (int64_t i = 0; i < count; i++) {                                                   \
            float pair[2];                                                                      \
            memcpy(pair, (const char *)values + i * (int64_t)sizeof pair, sizeof pair);         \
            ((uint8_t *)out)[i] = (uint8_t)(from(pair[0]) | from(pair[1]) << 4);                \
        }                                                                                       \
    }                                                                                           \
    FILL_BYTES(id, 0xffu)

HALF_BYTES(UINT4, , bw_float_to_uint4)
HALF_BYTES(FP4_E2M1, bw_fp4_e2m1_to_float, bw_float_to_fp4_e2m1)

#define BLOCKS(id, name)                                                                                \
    static void decode_##id(const void *blocks, int64_t count, double *out) {                           \
        for (int64_t i = 0; i < count; i++) {                                                           \
            float values[BW_##id##_ELEMS];                                                              \
            name##_decode((const char *)blocks + i * BW_##id##_BYTES, values);                          \
            for (int j = 0; j < BW_##id##_ELEMS; j++) out[i * BW_##id##_ELEMS + j] = (double)values[j]; \
        }                                                                                               \
    }                                                                                                   \
    static void encode_##id(const float *values, int64_t count, void *out) {                            \
        for (int64_t i = 0; i < count; i++) {                                                           \
            float block[BW_##id##_ELEMS];                                                               \
            memcpy(block, (const char *)values + i * (int64_t)sizeof block, sizeof block);              \
            name##_encode(block, (char *)out + i * BW_##id##_BYTES);                                    \
        }                                                                                               \
    }                                                                                                   \
    static void fill_##id(bw_input_key key, int64_t first, int64_t count, void *out) {                  \
        for (int64_t i = 0; i < count; i++) {                                                           \
            name##_fill(key, (uint64_t)(first + i), (char *)out + i * BW_##id##_BYTES);                 \
        }                                                                                               \
    }

BLOCKS(Q4_0, bw_q4_0)
BLOCKS(Q8_0, bw_q8_0)
BLOCKS(Q4_K, bw_q4_k)

/* Page ids, lengths and checksums are integers that are not converted. */
DECODE_ELEMENTS(I32, int32_t, )
DECODE_ELEMENTS(I64, int64_t, )
#define encode_I32 NULL
#define encode_I64 NULL
#define fill_I32 NULL
#define fill_I64 NULL

#define decode_NONE NULL
#define encode_NONE NULL
#define fill_NONE NULL

static const bw_dtype_info table[BW_DTYPE_COUNT] = {
#define BW_DTYPE_ROW(id, name, kind, elems, bytes, significand, lowest, inverse_square, item, text) \
    [BW_##id] = {name,           BW_KIND_##kind, elems, bytes,       significand, lowest,           \
                 inverse_square, item,           text,  decode_##id, encode_##id, fill_##id},
    BW_DTYPES(BW_DTYPE_ROW)
#undef BW_DTYPE_ROW
};

#define BW_DTYPE_FITS(id, name, kind, elems, bytes, ...) \
    _Static_assert((bytes) <= (elems) * sizeof(double), #id ": an element takes more than it does decoded");
BW_DTYPES(BW_DTYPE_FITS)
#undef BW_DTYPE_FITS

/* ---- what holds for all of them ---- */

const bw_dtype_info *bw_dtype_get(bw_dtype dtype) {
    return &table[dtype];
}

static const char *name_at(const void *unused, int index) {
    (void)unused;
    if (index >= BW_DTYPE_COUNT) return NULL;
    return table[index].encode_blocks ? table[index].name : "";
}

bw_status bw_dtype_find(const char *name, bw_dtype *out) {
    char allowed[512];
    int index = bw_name_find(name, name_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown type '%.200s': allowed are %s", name, allowed);
    *out = (bw_dtype)index;
    return BW_OK;
}

int64_t bw_dtype_bytes(bw_dtype dtype, int64_t elems) {
    const bw_dtype_info *info = &table[dtype];
    bw_checked_int bytes = bw_mul(bw_num(bw_ceil_div(elems, info->block_elems)), bw_num(info->block_bytes));
    return bytes.overflow ? -1 : bytes.value;
}

double bw_dtype_roundoff(bw_dtype dtype) {
    return ldexp(1.0, -table[dtype].significand_bits - 1);
}

double bw_dtype_half_unit(bw_dtype dtype, double value) {
    const int lowest = table[dtype].lowest_exponent;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023; /* of 0 and of what FP64 has no whole significand for: -1023 */
    if (exponent < lowest) exponent = lowest;
    bits = (uint64_t)(exponent - table[dtype].significand_bits - 1 + 1023) << 52;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double bw_dtype_load(bw_dtype dtype, const void *data, int64_t index) {
    const bw_dtype_info *info = &table[dtype];
    double block[BW_BLOCK_ELEMS_MAX];
    info->decode_blocks((const char *)data + index / info->block_elems * info->block_bytes, 1, block);
    return block[index % info->block_elems];
}

static bw_status refuse_index(bw_dtype dtype) {
    if (table[dtype].encode_blocks) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "%s holds no values of a precision", table[dtype].name);
}

bw_status bw_dtype_encode(bw_dtype dtype, const float *values, int64_t count, void *out) {
    const bw_dtype_info *info = &table[dtype];
    BW_TRY(refuse_index(dtype));
    const int64_t blocks = count / info->block_elems, rest = count % info->block_elems;
    info->encode_blocks(values, blocks, out);
    if (!rest) return BW_OK;
    float last[BW_BLOCK_ELEMS_MAX] = {0.0f};
    memcpy(last, (const char *)values + blocks * info->block_elems * (int64_t)sizeof *values,
           (size_t)rest * sizeof *values);
    info->encode_blocks(last, 1, (char *)out + blocks * info->block_bytes);
    return BW_OK;
}

bw_status bw_dtype_decode(bw_dtype dtype, const void *data, int64_t count, float *out) {
    const bw_dtype_info *info = &table[dtype];
    BW_TRY(refuse_index(dtype));
    double block[BW_BLOCK_ELEMS_MAX];
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i % info->block_elems;
        if (at == 0) info->decode_blocks((const char *)data + i / info->block_elems * info->block_bytes, 1, block);
        out[i] = (float)block[at];
    }
    return BW_OK;
}

/* ---- generated inputs ---- */

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
    table[dtype].fill_blocks(key, first, count, out);
}

/* Indices whose upper halves are `high`, rounded to what is left of a float's significand without its last `dropped`
 * bits. Inputs are multiples of 2^-23 no larger than 1, so that FP16's subnormal numbers hold theirs exactly. */
static inline __attribute__((always_inline)) void generate(bw_input_key key, uint32_t high, uint32_t low, int64_t count,
                                                           int dropped, double *out) {
    const uint32_t mask = (1u << dropped) - 1u, half = mask >> 1, odd = dropped ? 1u : 0u;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bw_float_bits(bw_input_value_at(key, high, low + (uint32_t)i));
        out[i] = (double)bw_bits_float((bits + half + (bits >> dropped & odd)) & ~mask);
    }
}

/* References spend half of their time here, and the baseline of x86-64 multiplies no vectors of integers. */
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void generate_avx2(bw_input_key key, uint32_t high, uint32_t low, int64_t count,
                                                          int dropped, double *out) {
    generate(key, high, low, count, dropped, out);
}
#define GENERATE (__builtin_cpu_supports("avx2") ? generate_avx2 : generate)
#else
#define GENERATE generate
#endif

static void float_doubles(int dropped, bw_input_key key, int64_t first, int64_t count, double *out) {
    while (count > 0) {
        uint32_t high = (uint32_t)((uint64_t)first >> 32), low = (uint32_t)(uint64_t)first;
        int64_t stretch = bw_min64(count, ((int64_t)1 << 32) - (int64_t)low);
        GENERATE(key, high, low, stretch, dropped, out);
        out += stretch;
        first += stretch;
        count -= stretch;
    }
}

/* Made as they are stored, some blocks at a time. */
static void stored_doubles(const bw_dtype_info *info, bw_input_key key, int64_t first, int64_t count, double *out) {
    enum { ELEMS = 4 * BW_BLOCK_ELEMS_MAX };
    char stored[ELEMS * sizeof(double)];
    double values[ELEMS];
    while (count > 0) {
        const int64_t block = first / info->block_elems, skipped = first % info->block_elems;
        const int64_t taken = bw_min64(count, ELEMS / info->block_elems * info->block_elems - skipped);
        const int64_t blocks = bw_ceil_div(skipped + taken, info->block_elems);
        info->fill_blocks(key, block, blocks, stored);
        info->decode_blocks(stored, blocks, values);
        memcpy(out, values + skipped, (size_t)taken * sizeof *out);
        out += taken;
        first += taken;
        count -= taken;
    }
}

void bw_input_doubles(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, double *out) {
    const bw_dtype_info *info = &table[dtype];
    if (info->kind == BW_KIND_FLOAT) {
        float_doubles(table[BW_FP32].significand_bits - info->significand_bits, key, first, count, out);
    } else {
        stored_doubles(info, key, first, count, out);
    }
}
