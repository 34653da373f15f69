/* The streams and the copies over the link to the host: see ops/families/memory/stream.h. */
#include "ops/families/memory/stream.h"

#include <string.h>

#include "base/types/input.h"
#include "ops/operand.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };
/* Elements that one reference row compares, and rows of a stretch of which one is looked at before a second is. */
enum { ROW_ELEMS = 64, ROW_PARTS = 16 };

static const bw_param params[] = {
    BW_PARAM("elements", "elements", "elements of each array", 1, (int64_t)1 << 42, .fallback = 1 << 28, .small = 5000),
};

static bw_operand vector(const char *name, bw_role role, bw_dtype dtype, int64_t elems) {
    return bw_operand_make(name, role, dtype, BW_SHAPE(elems));
}

static bw_rows element_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return (bw_rows){.count = bw_ceil_div(dims->value[BW_STREAM_ELEMENTS], ROW_ELEMS),
                     .elems = ROW_ELEMS,
                     .line = 1,
                     .parts = ROW_PARTS};
}

static void row_range(const bw_dims *dims, int64_t row, bw_reference_row *out) {
    out->offset = row * ROW_ELEMS;
    out->count = bw_min64(ROW_ELEMS, dims->value[BW_STREAM_ELEMENTS] - out->offset);
    out->scale = 1.0;
}

#define OPERATION(name_, rows_, tolerance_, ...)           \
    const bw_op bw_op_##name_ = {.name = #name_,           \
                                 .family = "stream",       \
                                 .params = params,         \
                                 .param_count = 1,         \
                                 .precisions = PRECISIONS, \
                                 .rows = rows_,            \
                                 .tolerance = tolerance_,  \
                                 __VA_ARGS__}
#define STREAM(name_, rows_, tolerance_, ...)                                                     \
    OPERATION(stream_##name_, rows_, tolerance_, .is_stream = true, .operands = name_##_operands, \
              .reference = name_##_reference, __VA_ARGS__);

static int64_t segment_count(const bw_dims *dims, const bw_precision *precision) {
    return bw_ceil_div(bw_dtype_bytes(precision->activation, dims->value[BW_STREAM_ELEMENTS]), BW_STREAM_SEGMENT_BYTES);
}

static int read_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    out[BW_STREAM_READ_A] = vector("a", BW_IN, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    out[BW_STREAM_READ_CHECKSUM] = vector("checksum", BW_OUT, BW_I32, segment_count(dims, precision));
    out[BW_STREAM_READ_CHECKSUM].moved = -1;
    return 2;
}

static bw_rows read_rows(const bw_dims *dims, const bw_precision *precision) {
    return (bw_rows){.count = segment_count(dims, precision), .elems = 1, .line = 1};
}

static bw_status read_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    uint32_t words[BW_STREAM_SEGMENT_BYTES / 4] = {0};
    int64_t per_segment = BW_STREAM_SEGMENT_BYTES / bw_dtype_bytes(precision->activation, 1);
    int64_t first = row * per_segment;
    int64_t count = bw_min64(per_segment, dims->value[BW_STREAM_ELEMENTS] - first);
    bw_input_fill(precision->activation, bw_input_key_make(seed, BW_STREAM_READ_A), first, count, words);
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) sum += words[i];
    out->operand = BW_STREAM_READ_CHECKSUM;
    out->offset = row;
    out->count = 1;
    out->scale = 1.0;
    int32_t as_stored;
    memcpy(&as_stored, &sum, sizeof as_stored);
    out->values[0] = as_stored;
    return BW_OK;
}

STREAM(read, read_rows, bw_tolerance_exact, .text = "read one array (a checksum per 4 KiB keeps the compiler honest)",
       .formula = {"elements*e_activation", "0", "0"});

static int write_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    out[BW_STREAM_WRITE_B] = vector("b", BW_OUT, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    return 1;
}

static bw_status write_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    (void)precision, (void)seed;
    row_range(dims, row, out);
    out->operand = BW_STREAM_WRITE_B;
    for (int64_t i = 0; i < out->count; i++) out->values[i] = (double)((out->offset + i) % 64 - 32) / 32.0;
    return BW_OK;
}

STREAM(write, element_rows, bw_tolerance_exact, .text = "write one array",
       .formula = {"0", "elements*e_activation", "0"});

static int copy_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    out[BW_STREAM_COPY_A] = vector("a", BW_IN, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    out[BW_STREAM_COPY_B] = vector("b", BW_OUT, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    return 2;
}

static bw_status copy_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    row_range(dims, row, out);
    out->operand = BW_STREAM_COPY_B;
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_STREAM_COPY_A), out->offset, out->count,
                     out->values);
    return BW_OK;
}

STREAM(copy, element_rows, bw_tolerance_exact, .text = "copy one array to another",
       .formula = {"elements*e_activation", "elements*e_activation", "0"});

static int triad_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    out[BW_STREAM_TRIAD_A] = vector("a", BW_IN, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    out[BW_STREAM_TRIAD_B] = vector("b", BW_IN, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    out[BW_STREAM_TRIAD_C] = vector("c", BW_OUT, precision->activation, dims->value[BW_STREAM_ELEMENTS]);
    return 3;
}

static bw_status triad_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    double b[ROW_ELEMS];
    row_range(dims, row, out);
    out->operand = BW_STREAM_TRIAD_C;
    out->scale = 0.5; /* root mean square of a + 0.5 b is sqrt(1.25 / 3) = 0.65 */
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_STREAM_TRIAD_A), out->offset, out->count,
                     out->values);
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_STREAM_TRIAD_B), out->offset, out->count, b);
    for (int64_t i = 0; i < out->count; i++) out->values[i] += (double)BW_STREAM_TRIAD_FACTOR * b[i];
    return BW_OK;
}

static bw_checked_int triad_flops(const bw_dims *dims) {
    return bw_mul(bw_num(2), bw_num(dims->value[BW_STREAM_ELEMENTS]));
}

/* The sum is rounded to float first. */
static bw_tolerance triad_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims, (void)precision, (void)rounds_once;
    return (bw_tolerance){2.0 * bw_dtype_roundoff(BW_FP32), 0.0};
}

STREAM(triad, element_rows, triad_tolerance, .flops = triad_flops, .text = "c = a + 0.5 b",
       .formula = {"2*elements*e_activation", "elements*e_activation", "2*elements"});

/* An end of a copy lies on the host; the other one is not what the link moves. */
static int to_device_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int count = copy_operands(dims, precision, out);
    out[BW_LINK_A].on_host = true;
    out[BW_LINK_B].moved = -1;
    return count;
}

static int to_host_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int count = copy_operands(dims, precision, out);
    out[BW_LINK_A].moved = -1;
    out[BW_LINK_B].on_host = true;
    return count;
}

static int exchange_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int count = to_device_operands(dims, precision, out);
    to_host_operands(dims, precision, out + count);
    out[BW_LINK_C].name = "c";
    out[BW_LINK_D].name = "d";
    return 2 * count;
}

static bw_rows exchange_rows(const bw_dims *dims, const bw_precision *precision) {
    bw_rows rows = element_rows(dims, precision);
    rows.count *= 2;
    return rows;
}

/* The rows of b, then those of d. */
static bw_status exchange_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                    bw_reference_row *out) {
    const int64_t each = element_rows(dims, precision).count;
    const bool leaves = row >= each;
    row_range(dims, leaves ? row - each : row, out);
    out->operand = leaves ? BW_LINK_D : BW_LINK_B;
    bw_input_doubles(precision->activation, bw_input_key_make(seed, leaves ? BW_LINK_C : BW_LINK_A), out->offset,
                     out->count, out->values);
    return BW_OK;
}

OPERATION(host_to_device, element_rows, bw_tolerance_exact, .is_link = true, .operands = to_device_operands,
          .reference = copy_reference, .text = "copy one array from the host's memory to the device's",
          .formula = {"elements*e_activation", "0", "0"});
OPERATION(device_to_host, element_rows, bw_tolerance_exact, .is_link = true, .operands = to_host_operands,
          .reference = copy_reference, .text = "copy one array from the device's memory to the host's",
          .formula = {"0", "elements*e_activation", "0"});
OPERATION(host_device_exchange, exchange_rows, bw_tolerance_exact, .is_link = true, .operands = exchange_operands,
          .reference = exchange_reference, .text = "copy one array to the device and another one to the host at once",
          .formula = {"elements*e_activation", "elements*e_activation", "0"});
