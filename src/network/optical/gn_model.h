/* SPDX-License-Identifier: Apache-2.0 */
/* Noise of a fully loaded amplified line: amplified spontaneous emission and
 * the Gaussian-noise model's nonlinear interference.
 *
 * The nonlinear interference is that of Poggiolini, "The GN model of non-linear
 * propagation in uncompensated coherent optical systems", arXiv:1209.0394,
 * equations (120) and (123), incoherent over spans. */
#ifndef LHI_NETWORK_OPTICAL_GN_MODEL_H
#define LHI_NETWORK_OPTICAL_GN_MODEL_H

#include <stdint.h>

enum { LHI_GN_MAX_CHANNELS = 1024, LHI_GN_MAX_COEFFICIENTS = 16 };

/* Channels on all lines. */
typedef struct lhi_gn_comb {
    uint32_t n_channels;
    double first_hz, spacing_hz, baud; /* baud: symbols per second */
} lhi_gn_comb;

/* Channels at one place: total power, and the signal's share of it. */
typedef struct lhi_gn_signal {
    double power_w[LHI_GN_MAX_CHANNELS];
    double share[LHI_GN_MAX_CHANNELS];
} lhi_gn_signal;

/* A fibre span. */
typedef struct lhi_gn_fibre {
    double length_m, loss_db_per_m, in_db, out_db;
    double dispersion, dispersion_slope; /* s/m^2, s/m^3; slope 0: none */
    double area_m2;                      /* effective */
} lhi_gn_fibre;

/* An amplifier's gain and noise over frequency, per channel, and its noise
 * figure over its gain. */
typedef struct lhi_gn_profile {
    /* Of a polynomial, the highest power first: noise figure in dB as a
     * function of the gain minus the highest gain, in dB. No coefficients: the
     * amplifier has another noise model. */
    uint32_t n_coefficients;
    double coefficients[LHI_GN_MAX_COEFFICIENTS];
    double band_hz;                       /* over which a tilt is given */
    double tilt[LHI_GN_MAX_CHANNELS];     /* dynamic gain tilt, dB per dB */
    double gain_db[LHI_GN_MAX_CHANNELS];  /* ripple of the gain */
    double noise_db[LHI_GN_MAX_CHANNELS]; /* ripple of the noise figure */
} lhi_gn_profile;

/* An amplifier. Its noise figure follows from two stages: that of the first,
 * nf1, plus that of the second, nf2, over the gain between them. */
typedef struct lhi_gn_amplifier {
    double gain_db, in_voa_db, out_voa_db;
    double gain_min_db, gain_max_db, power_max_dbm;
    double nf1_db, nf2_db, stage_loss_db; /* nf2_db -INFINITY: one stage */
    /* Of the gain over wavelength, from the band's begin to its end. */
    double tilt_db;
    const lhi_gn_profile *profile; /* NULL: all channels are alike, no tilt */
} lhi_gn_amplifier;

/* Converts decibels into a ratio: 10^(db / 10). */
double lhi_gn_from_db(double db);
double lhi_gn_to_db(double ratio);

/* Returns a channel's noise-to-signal ratio by nonlinear interference from a
 * channel `apart_hz` higher (0: from itself) after one span, per square of
 * their power at the span's input; both have the symbol rate `baud`, and the
 * fibre its properties at frequency `hz`. */
double lhi_gn_compute_interference(const lhi_gn_fibre *fibre, double hz,
                                   double baud, double apart_hz);
/* Returns the power that an amplifier which compensates a span's attenuation
 * emits in a channel, in W at the span's input; `nf`: its noise figure, a
 * ratio. */
double lhi_gn_compute_emission(const lhi_gn_fibre *fibre, double hz,
                               double baud, double nf);
/* Divides the power of all channels by the ratio of `db` decibels; a negative
 * `db` amplifies without noise. */
void lhi_gn_attenuate(const lhi_gn_comb *comb, double db,
                      lhi_gn_signal *signal);
/* Updates the channels' powers and signal shares after a fibre span: connector
 * losses, nonlinear interference and the fibre's attenuation. */
void lhi_gn_propagate(const lhi_gn_comb *comb, const lhi_gn_fibre *fibre,
                      lhi_gn_signal *signal);
/* Updates the channels' powers and signal shares after an amplifier: its gain,
 * limited by its total output power, and its noise. */
void lhi_gn_amplify(const lhi_gn_comb *comb, const lhi_gn_amplifier *amplifier,
                    lhi_gn_signal *signal);

#endif
