/* What the checks see of the fake NVML: fixed values, and any call made to fail. */
#ifndef TESTS_NATIVE_FAKE_NVML_H
#define TESTS_NATIVE_FAKE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_NVML_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define FAKE_NVML_PCI "00000000:1b:00.0"

typedef struct fake_nvml_state {
    int64_t calls, fail_at; /* the so-many-th call fails; 0 = none, -1 = all that read from the device */
    int fail_code;
    bool failed;
    char failed_call[64];
    int64_t live;               /* initialized and not shut down */
    unsigned long long reasons; /* the throttle word */
    unsigned power_type;        /* of the instantaneous power: 1 = unsigned */
} fake_nvml_state;

#endif
