/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment by the GSNR under the current load: a circuit is accepted if its
 * own GSNR and that of all circuits in use suffice for their modulation
 * formats. Noise is that of the GN model (gn_model.h) with one channel per
 * slot, on amplified lines of equal spans. */
#ifndef LHI_NETWORK_OPTICAL_LOAD_GSNR_H
#define LHI_NETWORK_OPTICAL_LOAD_GSNR_H

#include "network/optical/assignment.h"
#include "network/optical/gn_model.h"

/* A modulation format: rate of a slot, and the least signal-to-noise ratio. */
typedef struct lhi_load_format {
    int64_t mbps;
    double snr_db;
} lhi_load_format;

enum { LHI_N_LOAD_FORMATS = 3 };
/* By decreasing rate. */
extern const lhi_load_format lhi_load_formats[LHI_N_LOAD_FORMATS];

/* Noise-to-signal ratios are integers in units of 2^-50, so that sums do not
 * depend on their order. */
#define LHI_LOAD_UNIT 0x1p-50

/* A circuit in use. */
typedef struct lhi_load_circuit {
    const lhi_path *path; /* NULL: unused entry */
    uint32_t first, end;  /* slots, without guard slots */
    int64_t noise, most;  /* at its middle slot; the format's limit */
} lhi_load_circuit;

/* The noise of all circuits in use. */
struct lhi_load_gsnr {
    const lhi_network *network;
    double launch_w;                  /* per slot */
    int64_t most[LHI_N_LOAD_FORMATS]; /* noise that a format permits */
    int64_t *emitted; /* per cable: amplified spontaneous emission */
    /* [cable * slots + d]: interference with a slot from the slots at distances
     * 0 to d above it. */
    int64_t *sums;
    uint32_t *n_on, *on; /* circuits per fibre: on[fibre * slots + i] */
    lhi_load_circuit *circuits;
    int64_t *rises; /* per circuit: by the request under examination */
    uint32_t *raised;
    uint32_t n_raised, n_circuits;
    lhi_load_circuit examined; /* with these rises; path NULL: none */
};

/* A span as all lines have it, except for its length: standard single-mode
 * fibre. */
lhi_gn_fibre lhi_load_gsnr_fibre(double length_m);

/* Computes the noise of a network's lines without circuits. Release with
 * lhi_load_gsnr_fini(), also after a failure. LH_ENOMEM. */
lh_status lhi_load_gsnr_init(const lhi_network *network, lhi_load_gsnr *out,
                             lh_error *err);
/* Frees the noise of circuits. */
void lhi_load_gsnr_fini(lhi_load_gsnr *g);

/* Returns the rate per slot, in Mb/s, of the fastest format that a circuit on a
 * free block of slots, without guard slots, may have; 0: it would have too much
 * noise in any format, or a circuit in use would. */
int64_t lhi_load_gsnr_accept(lhi_load_gsnr *g, const lhi_path *path,
                             uint32_t first, uint32_t slots);
/* Chooses the first path and on it the fastest format whose first free block of
 * slots carries `gbps` Gb/s without too much noise on any circuit. Returns
 * false if the request is blocked. */
bool lhi_load_gsnr_first_fit(lhi_load_gsnr *g, const lhi_spectrum *spectrum,
                             const lhi_paths *paths, uint32_t gbps,
                             lhi_circuit_grant *grant);
/* Adds a circuit that was accepted under the same load, with the index `at`;
 * false on allocation failure. */
bool lhi_load_gsnr_add(lhi_load_gsnr *g, uint32_t at,
                       const lhi_circuit_grant *grant);
/* Removes a circuit. */
void lhi_load_gsnr_remove(lhi_load_gsnr *g, uint32_t at);

#endif
