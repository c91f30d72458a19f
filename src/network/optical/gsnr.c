/* SPDX-License-Identifier: Apache-2.0 */
/* GSNR of paths, and modes that reach. */
#include "network/optical/gnpy.h"

#include <math.h>

/* Reference bandwidth of OSNR, 0.1 nm. */
#define REFERENCE_HZ 12.5e9

lhi_gsnr lhi_gn_compute_gsnr(const lhi_gn *gn, uint32_t from, uint32_t to,
                             const uint32_t *fibres, uint32_t hops,
                             double tx_osnr_db)
{
    uint32_t n = gn->comb.n_channels;
    lhi_gsnr out = {.least_db = INFINITY};
    double others = lhi_gn_from_db(-tx_osnr_db) +
                    lhi_gn_from_db(-gn->add_osnr_db[from]) +
                    lhi_gn_from_db(-gn->drop_osnr_db[to]);
    for (uint32_t i = 0; i < n; i++) {
        double share = 1;
        for (uint32_t h = 0; h < hops; h++)
            share *= gn->shares[(size_t)fibres[h] * n + i];
        double noise =
            (1 - share) / share * REFERENCE_HZ / gn->comb.baud + others;
        double db = -lhi_gn_to_db(noise);
        out.least_db = fmin(out.least_db, db);
        out.mean_db += db / n;
    }
    return out;
}

const lhi_gn_mode *lhi_gn_choose_mode(const lhi_gn *gn,
                                      const lhi_gn_transceiver *transceiver,
                                      double margin_db, uint32_t from,
                                      uint32_t to, const uint32_t *fibres,
                                      uint32_t hops)
{
    const lhi_gn_mode *best = NULL;
    for (uint32_t i = 0; i < transceiver->n_modes; i++) {
        const lhi_gn_mode *m = &transceiver->modes[i];
        lhi_gsnr gsnr =
            lhi_gn_compute_gsnr(gn, from, to, fibres, hops, m->tx_osnr_db);
        if (gsnr.least_db >= m->osnr_db + margin_db &&
            (!best || m->mbps > best->mbps))
            best = m;
    }
    return best;
}
