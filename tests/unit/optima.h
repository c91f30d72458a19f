/* SPDX-License-Identifier: Apache-2.0 */
/* Proven optimal makespans of the schedules in tests/data/optima. */
#ifndef TEST_OPTIMA_H
#define TEST_OPTIMA_H

#include <stdint.h>

static const struct optimum {
    const char *name;
    int64_t ms;
} optima[] = {
    {"ud2x4_nolat_mem2", 28},   {"ud2x5_lat_mem2", 54},
    {"ud2x6_bwbound_mem4", 77}, {"ud3x5_hetero_free", 69},
    {"ud3x6_asym_links", 92},   {"ud4x6_mem4", 68},
    {"wave2x3_mem4", 56},       {"wave3x4_lat_mem6", 69},
};

enum { N_OPTIMA = sizeof optima / sizeof *optima };

#endif
