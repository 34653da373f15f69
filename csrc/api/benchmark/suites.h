/* Suites as C has them: setup.py writes `suite_table.h`, an array bw_suites, out of bwprof/suites/ *.toml, where the
 * facts are. Lists end with NULL; a NULL list says nothing. */
#ifndef BW_API_SUITES_H
#define BW_API_SUITES_H

#include <stdint.h>

/* One combination of an entry's parameters. */
typedef struct bw_suite_case {
    const char *name, *operation;
    const char *const *params; /* names, of as many `values` */
    const int64_t *values;
    const int64_t *lengths; /* kv_lens; NULL: none */
    int64_t length_count;
    const char *const *precisions, *const *variants, *const *backends, *const *caches;
} bw_suite_case;

/* What is otherwise on a backend. */
typedef struct bw_suite_on {
    const char *backend;
    const char *const *precisions; /* NULL: the suite's */
    double target_seconds;         /* 0: the suite's */
} bw_suite_on;

typedef struct bw_suite {
    const char *name;
    const char *const *precisions;
    double target_seconds; /* of all cases together; 0: no aim */
    const bw_suite_on *on; /* ended by one without a backend */
    const bw_suite_case *cases;
    int case_count;
} bw_suite;

#endif
