/* What the checks share: a failure is printed where it happened and the check goes on. */
#ifndef TESTS_NATIVE_CHECK_H
#define TESTS_NATIVE_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fake.h"
#include "measure/measure.h"

typedef struct check {
    const char *name;
    bool per_op; /* run once for every operation of the registry */
    void (*run)(int op_index);
} check;

/* One list per file, ended by a row without a name. */
extern const check verify_checks[], replay_checks[], rotation_checks[], variant_checks[], stop_checks[], fault_checks[],
    conditions_checks[], reference_checks[], nvml_checks[], call_checks[], ranges_checks[], host_checks[],
    memory_checks[], types_checks[], api_checks[], annotation_checks[];

extern int check_failures;

#define CHECK(condition, ...)                                      \
    do {                                                           \
        if (!(condition)) {                                        \
            check_failures++;                                      \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                   \
            printf("\n");                                          \
        }                                                          \
    } while (0)

#define CHECK_EQUAL(found, wanted)                                                                               \
    do {                                                                                                         \
        int64_t found_ = (int64_t)(found), wanted_ = (int64_t)(wanted);                                          \
        CHECK(found_ == wanted_, "%s is %" PRId64 ", expected %s = %" PRId64, #found, found_, #wanted, wanted_); \
    } while (0)

/* Expects success; frees the status either way and says whether it was one. */
bool check_ok(bw_status status, const char *what);
/* Expects this code and, in the message, this text; frees the status. */
void check_code(bw_status status, bw_code code, const char *text, const char *what);

#define OK(expression) check_ok((expression), #expression)
#define FAILS(expression, code, text) check_code((expression), (code), (text), #expression)

typedef struct fixture {
    bw_session *session;
    bw_case *content;
} fixture;

/* kv_copy of this many floats per array in FP32, or the float vectors of stream_copy: byte counts worked out by hand.
 */
/* FP32 where the operation has it. */
const bw_precision *first_precision(const bw_op *op);
bw_status open_case(fixture *fixture, const char *op, bw_precision_id precision, const bw_dims *dims,
                    const char *variant);
/* Every parameter has its small value; `paged` counts where the operation has a page_size. */
bw_status open_small(fixture *fixture, int op_index, bool paged);
bw_status open_copy(fixture *fixture, int64_t elements);
void close_case(fixture *fixture);

/* Cold, +-0.5 %, at least 10 samples, as long as it takes up to 20 s, all rows checked. */
bw_measure_options usual_options(void);

/* To check rows for so many seconds, with nobody to interrupt. */
#define BUDGET(time_s) (&(bw_budget){.seconds = (time_s)})

#endif
