/* Dropout's mask: whether an element stays follows from a seed and the element's index alone, so that nobody stores it.
 * Philox4x32 with 7 rounds (Salmon et al., SC 2011, https://doi.org/10.1145/2063384.2063405): a call makes eight
 * numbers of 16 bits, which serve eight neighbors. The same code runs on host and device. */
#pragma once

#include <stdbool.h>

#include "base/types/convert.h"

enum { BW_DROPOUT_CALL = 8 }; /* elements that a call serves */

typedef struct bw_dropout_numbers {
    uint32_t word[BW_DROPOUT_CALL / 2]; /* the first element's in the low half */
} bw_dropout_numbers;

/* Of elements [8 call, 8 call + 8). */
BW_HD bw_dropout_numbers bw_dropout_draw(uint64_t seed, uint64_t call) {
    uint32_t c0 = (uint32_t)call, c1 = (uint32_t)(call >> 32), c2 = 0, c3 = 0;
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 7; round++) {
        const uint64_t left = (uint64_t)0xd2511f53u * c0, right = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(right >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)right;
        c2 = (uint32_t)(left >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)left;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    bw_dropout_numbers numbers = {{c0, c1, c2, c3}};
    return numbers;
}

/* What an element's number must reach for it to stay. */
BW_HD uint32_t bw_dropout_threshold(int64_t percent) {
    return (uint32_t)((percent * 65536 + 50) / 100);
}

/* Elements that stay grow by this, so that the mean does not change. */
BW_HD float bw_dropout_growth(int64_t percent) {
    return 100.0f / (float)(100 - percent);
}

/* Element `which`, 0 to 7, of the call that made the numbers. A GPU would put them into memory to index them. */
BW_HD bool bw_dropout_stays(const bw_dropout_numbers *numbers, int which, uint32_t threshold) {
    const uint32_t *word = numbers->word;
    const uint32_t low = which & 2 ? word[1] : word[0], high = which & 2 ? word[3] : word[2];
    return ((which & 4 ? high : low) >> which % 2 * 16 & 0xffffu) >= threshold;
}

BW_HD bool bw_dropout_keeps(uint64_t seed, uint64_t element, uint32_t threshold) {
    const bw_dropout_numbers numbers = bw_dropout_draw(seed, element / BW_DROPOUT_CALL);
    return bw_dropout_stays(&numbers, (int)(element % BW_DROPOUT_CALL), threshold);
}
