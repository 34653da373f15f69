/* strided_read, strided_write, random_read, random_write: see ops/families/memory/access.h. Their bytes are those of
 * the units alone, which are what is useful; what memory moves for them, and the indices, are a variant's cost. */
#include "ops/families/memory/access.h"

#include <inttypes.h>
#include <string.h>

#include "ops/operand.h"

/* Granules are of bytes, in whatever type: FP32 stands for all. */
enum { STRIDED = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16), RANDOM = BW_MASK(FP32) };
enum { STRIDE_MOST = 65536, OFFSET_MOST = 4096, READERS_MOST = 1024, GRANULE_LEAST = 4 };
enum { ROW_ELEMS = 64 }; /* of what a strided write leaves, where the stride is no longer */

extern const bw_op bw_op_strided_read, bw_op_strided_write, bw_op_random_read;

static bool is_random(const bw_dims *dims) {
    return dims->op != &bw_op_strided_read && dims->op != &bw_op_strided_write;
}

static bool reads(const bw_dims *dims) {
    return dims->op == &bw_op_strided_read || dims->op == &bw_op_random_read;
}

static bw_access access_of(const bw_dims *dims, const bw_precision *precision) {
    if (is_random(dims)) return bw_access_random(dims, precision);
    return reads(dims) ? bw_access_shared(dims, precision) : bw_access_strided(dims, precision);
}

/* A permutation without an order: rounds of a hash that is one-to-one below a power of two, until it is below the
 * count. */
static int64_t shuffled(int64_t i, int64_t count, uint64_t seed) {
    uint64_t mask = 0, x = (uint64_t)i;
    int half = 1;
    while (mask < (uint64_t)count - 1) mask = mask << 1 | 1;
    while (mask >> 2 * half) half++;
    do {
        for (int round = 0; round < 3; round++) {
            x = (x * 0x9e3779b97f4a7c15u + seed) & mask;
            x ^= x >> half;
        }
    } while (x >= (uint64_t)count);
    return (int64_t)x;
}

static bw_status validate(const bw_dims *dims) {
    const int at = is_random(dims) ? BW_RANDOM_GRANULE_BYTES : BW_STRIDED_READERS;
    const int64_t *value = dims->value, power = is_random(dims) || reads(dims) ? value[at] : 1;
    if ((power & (power - 1)) != 0) {
        return bw_fail(BW_CODE_INVALID, "%s: %s = %" PRId64 ": a power of two is needed", dims->op->name,
                       dims->op->params[at].name, power);
    }
    if (is_random(dims) && bw_ceil_div(value[BW_RANDOM_ARRAY_BYTES], power) > INT32_MAX) {
        return bw_fail(BW_CODE_INVALID, "%s: array_bytes / granule_bytes overflows the index's 32 bits",
                       dims->op->name);
    }
    if (!is_random(dims) && value[BW_STRIDED_OFFSET] >= value[BW_STRIDED_ELEMENTS]) {
        return bw_fail(BW_CODE_INVALID, "%s: offset = %" PRId64 ": allowed is less than elements = %" PRId64,
                       dims->op->name, value[BW_STRIDED_OFFSET], value[BW_STRIDED_ELEMENTS]);
    }
    return BW_OK;
}

static int operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const bw_access access = access_of(dims, precision);
    const int64_t elem = bw_dtype_bytes(precision->activation, 1);
    const bool random = is_random(dims), read = reads(dims);
    const int64_t elems = random ? access.units * access.unit_bytes / elem : dims->value[BW_STRIDED_ELEMENTS];
    const bw_role role = read ? BW_IN : random ? BW_OUT : BW_INOUT;
    out[BW_ACCESS_ARRAY] = bw_operand_make(read ? "a" : "b", role, precision->activation, BW_SHAPE(elems));
    out[BW_ACCESS_ARRAY].moved = access.units * access.unit_bytes / elem;
    const int64_t segments = bw_ceil_div(access.units * access.unit_bytes, BW_ACCESS_SEGMENT_BYTES);
    out[BW_ACCESS_CHECKSUM] = bw_operand_make("checksum", BW_OUT, read ? BW_I32 : BW_NONE, BW_SHAPE(segments));
    out[BW_ACCESS_CHECKSUM].moved = -1;
    out[BW_ACCESS_INDEX] =
        bw_operand_indices("index", BW_RECIPE_HOST, BW_I32, 0, access.units - 1, BW_SHAPE(access.units));
    out[BW_ACCESS_INDEX].present = random;
    out[BW_ACCESS_INDEX].moved = -1;
    return BW_ACCESS_OPERANDS;
}

static void host_input(const bw_dims *dims, uint64_t seed, int operand, void *out) {
    (void)operand;
    const int64_t count = bw_access_random(dims, NULL).units;
    for (int64_t i = 0; i < count; i++) ((int32_t *)out)[i] = (int32_t)shuffled(i, count, seed);
}

/* The element that unit i begins with. */
static int64_t first_element(const bw_dims *dims, const bw_access *access, int64_t elem, uint64_t seed, int64_t i) {
    const int64_t place = is_random(dims) ? shuffled(i, access->units, seed) : i;
    return (access->offset_bytes + access->step_bytes * place) / elem;
}

static bw_rows read_rows(const bw_dims *dims, const bw_precision *precision) {
    const bw_access access = access_of(dims, precision);
    return (bw_rows){
        .count = bw_ceil_div(access.units * access.unit_bytes, BW_ACCESS_SEGMENT_BYTES), .elems = 1, .line = 1};
}

static bw_status read_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    const bw_access access = access_of(dims, precision);
    const bw_input_key key = bw_input_key_make(seed, BW_ACCESS_ARRAY);
    const int64_t elem = bw_dtype_bytes(precision->activation, 1), each = BW_ACCESS_SEGMENT_BYTES / access.unit_bytes;
    uint32_t words[BW_ACCESS_SEGMENT_BYTES / 4], sum = 0;
    for (int64_t i = row * each; i < bw_min64((row + 1) * each, access.units); i++) {
        words[0] = 0;
        bw_input_fill(precision->activation, key, first_element(dims, &access, elem, seed, i), access.unit_bytes / elem,
                      words);
        for (int64_t word = 0; word < bw_ceil_div(access.unit_bytes, 4); word++) sum += words[word];
    }
    sum <<= access.readers_shift;
    int32_t as_stored;
    memcpy(&as_stored, &sum, sizeof as_stored);
    *out = (bw_reference_row){
        .operand = BW_ACCESS_CHECKSUM, .offset = row, .count = 1, .scale = 1.0, .values = out->values};
    out->values[0] = as_stored;
    return BW_OK;
}

/* Strided units of one row, which holds what lies behind each of them, too, and the first one what lies before it. */
static int64_t row_units(const bw_dims *dims) {
    return is_random(dims) ? 1 : bw_ceil_div(ROW_ELEMS, dims->value[BW_STRIDED_STRIDE]);
}

static bw_rows write_rows(const bw_dims *dims, const bw_precision *precision) {
    const bw_access access = access_of(dims, precision);
    const int64_t elems =
        (access.offset_bytes + row_units(dims) * access.step_bytes) / bw_dtype_bytes(precision->activation, 1);
    return (bw_rows){.count = bw_ceil_div(access.units, row_units(dims)), .elems = elems, .line = 1};
}

static bw_status write_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    const bw_access access = access_of(dims, precision);
    const int64_t elem = bw_dtype_bytes(precision->activation, 1), size = access.unit_bytes / elem;
    const int64_t unit = row * row_units(dims), next = bw_min64(unit + row_units(dims), access.units);
    const int64_t first = first_element(dims, &access, elem, seed, unit);
    const int64_t end = is_random(dims)       ? first + size
                        : next < access.units ? first_element(dims, &access, elem, seed, next)
                                              : dims->value[BW_STRIDED_ELEMENTS];
    out->operand = BW_ACCESS_ARRAY;
    out->scale = 1.0;
    out->offset = unit || is_random(dims) ? first : 0;
    out->count = end - out->offset;
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_ACCESS_ARRAY), out->offset, out->count,
                     out->values);
    for (int64_t i = unit; i < next; i++) {
        double *to = out->values + first_element(dims, &access, elem, seed, i) - out->offset;
        for (int64_t e = 0; e < size; e++) to[e] = (double)bw_pattern_value((uint64_t)i);
    }
    return BW_OK;
}

#define STRIDED_PARAMS                                                                                        \
    BW_PARAM("elements", "elements", "elements of the array", 1, (int64_t)1 << 42, .fallback = 1 << 28,       \
             .small = 5000),                                                                                  \
        BW_PARAM("stride", "elements", "elements from one access to the next", 1, STRIDE_MOST, .fallback = 1, \
                 .small = 3),                                                                                 \
        BW_PARAM("offset", "elements", "elements before the first access", 0, OFFSET_MOST, .fallback = 0, .small = 1)

static const bw_param strided_params[] = {
    STRIDED_PARAMS,
    BW_PARAM("readers", "threads", "neighboring threads that read each element; a power of two", 1, READERS_MOST,
             .fallback = 1, .small = 2),
};

static const bw_param random_params[] = {
    BW_PARAM("array_bytes", "bytes", "size of the array, rounded up to whole granules", 1, (int64_t)1 << 42,
             .fallback = 1 << 30, .small = 20001),
    BW_PARAM("granule_bytes", "bytes", "adjacent bytes of one access; a power of two", GRANULE_LEAST,
             BW_ACCESS_SEGMENT_BYTES, .fallback = 128, .small = 32),
};

#define ACCESS(name_, params_, count_, precisions_, way, ...)     \
    const bw_op bw_op_##name_ = {.name = #name_,                  \
                                 .family = "access",              \
                                 .params = params_,               \
                                 .param_count = count_,           \
                                 .precisions = precisions_,       \
                                 .operands = operands,            \
                                 .rows = way##_rows,              \
                                 .reference = way##_reference,    \
                                 .tolerance = bw_tolerance_exact, \
                                 __VA_ARGS__}

ACCESS(strided_read, strided_params, 4, STRIDED, read, .validate = validate,
       .text = "read elements a stride apart, each by one thread or by neighbors (checksums of 4 KiB)",
       .formula = {"ceil((elements - offset)/stride)*e_activation", "0", "0"});
ACCESS(strided_write, strided_params, 3, STRIDED, write, .validate = validate, .text = "write elements a stride apart",
       .formula = {"0", "ceil((elements - offset)/stride)*e_activation", "0"});
ACCESS(random_read, random_params, 2, RANDOM, read, .validate = validate, .host_input = host_input,
       .text = "read all granules of an array in random order (checksums of 4 KiB)",
       .formula = {"ceil(array_bytes/granule_bytes)*granule_bytes", "0", "0"});
ACCESS(random_write, random_params, 2, RANDOM, write, .validate = validate, .host_input = host_input,
       .text = "write all granules of an array in random order",
       .formula = {"0", "ceil(array_bytes/granule_bytes)*granule_bytes", "0"});
