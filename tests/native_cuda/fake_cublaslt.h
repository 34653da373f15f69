/* What check_search.c and the fake cuBLASLt share: how many algorithms there are, and who runs one. */
#ifndef FAKE_CUBLASLT_H
#define FAKE_CUBLASLT_H

#define FAKE_EXPORT __attribute__((visibility("default")))

typedef struct fake_cublaslt {
    int algorithms;
    int (*run)(int algorithm); /* 0, or the status of the product */
} fake_cublaslt;

fake_cublaslt *fake_cublaslt_books(void);

#endif
