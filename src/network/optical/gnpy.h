/* SPDX-License-Identifier: Apache-2.0 */
/* Networks in the JSON form of GNPy (github.com/Telecominfraproject/oopt-gnpy):
 * ROADMs become nodes, pairs of amplified lines become cables, and each line
 * has the signal's share of its power after the line, per channel. */
#ifndef LHI_NETWORK_OPTICAL_GNPY_H
#define LHI_NETWORK_OPTICAL_GNPY_H

#include "network/optical/gn_model.h"
#include "network/optical/network.h"

/* A transceiver's mode. */
typedef struct lhi_gn_mode {
    const char *format;
    double osnr_db, tx_osnr_db; /* required; of the sender, in 12.5 GHz */
    int64_t mbps;               /* per slot of 12.5 GHz */
} lhi_gn_mode;

/* A transceiver with its modes. */
typedef struct lhi_gn_transceiver {
    const char *name;
    uint32_t n_modes;
    const lhi_gn_mode *modes;
} lhi_gn_transceiver;

/* Noise of a topology's lines. */
struct lhi_gn {
    lhi_gn_comb comb;
    double tx_osnr_db; /* default of the spectrum */
    /* Per node, of adding and of dropping a channel; INFINITY: no noise. */
    const double *add_osnr_db, *drop_osnr_db;
    const double *shares; /* [(2 * cable + direction) * n_channels + channel] */
    uint32_t n_transceivers;
    const lhi_gn_transceiver *transceivers;
};

/* Nodes and cables as read from GNPy's files. */
typedef struct lhi_gnpy_network {
    uint32_t n_nodes, n_cables;
    const char **names; /* per node, without "roadm " */
    lh_cable *cables;
    lhi_gn *gn;
} lhi_gnpy_network;

/* Reads a network from GNPy's network and equipment files (the paths files[0]
 * and files[1]): nodes, cables and their noise, allocated in `mem`. Appends the
 * files of amplifier profiles to `files`. LH_EINPUT: an element is missing,
 * unknown or of a type that is not modelled. */
lh_status lhi_gnpy_read(const char *files[LHI_MAX_FILES], lhi_arena *mem,
                        lhi_gnpy_network *out, lh_error *err);

/* Reads an amplifier's gain and noise over frequency from a file of GNPy (dgt,
 * gain_ripple, nf_ripple), and its noise figure (nf_fit_coeff) if `advanced`.
 * band_hz: first and last frequency; where 0, those of the file. `mem`: for
 * temporary values. LH_EINPUT: the band does not contain all channels. */
lh_status lhi_gn_profile_read(const char *path, bool advanced,
                              const lhi_gn_comb *comb, lhi_arena *mem,
                              double band_hz[2], lhi_gn_profile *out,
                              lh_error *err);

/* Checks the path profiles that a ROADM in the network file names
 * (per_degree_impairments), given its equipment `type`. LH_EINPUT: one is not
 * the first one of its kind; such profiles are not modelled. */
lh_status lhi_gnpy_check_profiles(const lhi_doc *net, const lhi_node *roadm,
                                  const lhi_node *type, lh_error *err);
/* Finds in a ROADM's equipment `type` the entry for all channels of its first
 * path profile of this kind (such as "roadm-add-path"); NULL: it has no such
 * profile. LH_EINPUT: no entry of the profile covers the channels. */
lh_status lhi_gnpy_find_path_entry(const lhi_doc *eqpt, const lhi_node *type,
                                   const char *kind, const lhi_gn_comb *comb,
                                   const lhi_node **out, lh_error *err);

/* GSNR of a path in 12.5 GHz, in dB. */
typedef struct lhi_gsnr {
    double least_db, mean_db; /* over the channels */
} lhi_gsnr;

/* Computes a path's GSNR (signal-to-noise ratio with nonlinear noise) from node
 * `from` to node `to` over `hops` directed fibres (2 * cable + direction).
 * Includes the transmitter's noise (tx_osnr_db) and that of adding and
 * dropping. */
lhi_gsnr lhi_gn_compute_gsnr(const lhi_gn *gn, uint32_t from, uint32_t to,
                             const uint32_t *fibres, uint32_t hops,
                             double tx_osnr_db);
/* Chooses a transceiver's mode with the highest rate per slot among those whose
 * required OSNR plus margin_db is at most the GSNR of the path's worst channel;
 * NULL: there is none. */
const lhi_gn_mode *lhi_gn_choose_mode(const lhi_gn *gn,
                                      const lhi_gn_transceiver *transceiver,
                                      double margin_db, uint32_t from,
                                      uint32_t to, const uint32_t *fibres,
                                      uint32_t hops);

#endif
