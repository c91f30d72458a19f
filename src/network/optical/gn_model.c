/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/gn_model.h"

#include <math.h>
#include <stdbool.h>

#define PI 3.14159265358979323846
#define LIGHT_M_PER_S 299792458.0
#define PLANCK 6.62607015e-34
/* Silica: nonlinear index, m^2/W; core radius of the mode's Gaussian
 * approximation, m; wavelength at which fibres are specified, m. */
#define NONLINEAR_INDEX 2.6e-20
#define CORE_RADIUS_M 4.2e-6
#define REFERENCE_M 1550e-9

double lhi_gn_from_db(double db)
{
    return pow(10, db / 10);
}

/* Converts a ratio into decibels: 10 log10(ratio). */
double lhi_gn_to_db(double ratio)
{
    return 10 * log10(ratio);
}

/* Returns a channel's centre frequency, in Hz. */
static double get_hz(const lhi_gn_comb *comb, uint32_t channel)
{
    return comb->first_hz + channel * comb->spacing_hz;
}

void lhi_gn_attenuate(const lhi_gn_comb *comb, double db, lhi_gn_signal *signal)
{
    double factor = lhi_gn_from_db(-db);
    for (uint32_t i = 0; i < comb->n_channels; i++)
        signal->power_w[i] *= factor;
}

/* Returns the group velocity dispersion beta2 of a fibre at frequency `hz`, in
 * s^2/m. */
static double compute_beta2(const lhi_gn_fibre *f, double hz)
{
    double wavelength = LIGHT_M_PER_S / hz;
    double ratio = hz / (LIGHT_M_PER_S / REFERENCE_M);
    double dispersion =
        f->dispersion_slope > 0 || f->dispersion_slope < 0
            ? f->dispersion + f->dispersion_slope * (wavelength - REFERENCE_M)
            : f->dispersion * ratio * ratio;
    return -wavelength * wavelength * dispersion / (2 * PI * LIGHT_M_PER_S);
}

/* Returns the nonlinear coefficient at a frequency, 1/(W m). The mode's area
 * shrinks with the frequency as that of a Gaussian mode in a step-index core:
 * area = pi a^2 / ln V, with V proportional to the frequency. */
static double compute_gamma(const lhi_gn_fibre *f, double hz)
{
    double core = PI * CORE_RADIUS_M * CORE_RADIUS_M;
    double reference_hz = LIGHT_M_PER_S / REFERENCE_M;
    double area = core / (core / f->area_m2 + log(hz / reference_hz));
    return 2 * PI * NONLINEAR_INDEX * hz / (LIGHT_M_PER_S * area);
}

/* Returns a fibre's attenuation of power, in 1/m. */
static double compute_attenuation(const lhi_gn_fibre *f)
{
    return f->loss_db_per_m * log(10) / 10;
}

/* Returns the efficiency with which a channel `apart` Hz higher (`same`: the
 * channel itself) interferes, by equation (120) or (123). `attenuation`: of
 * power, in 1/m; b: mean dispersion of the two channels, s^2/m. */
static double compute_efficiency(const lhi_gn_fibre *f, double attenuation,
                                 double b, double baud, double apart, bool same)
{
    double length = (1 - exp(-attenuation * f->length_m)) / attenuation;
    double asymptotic = 1 / attenuation;
    double scale = PI * PI * asymptotic * b * baud;
    double psi = (asinh(scale * (apart + baud / 2)) -
                  asinh(scale * (apart - baud / 2))) /
                 2 * length * length / (2 * PI * b * asymptotic);
    return (same ? 1 : 2) * 16.0 / 27 * psi;
}

/* Moves power from each channel's signal to nonlinear interference, as the GN
 * model computes it at the fibre's input. `attenuation`: of power, in 1/m. */
static void add_interference(const lhi_gn_comb *comb, const lhi_gn_fibre *f,
                             double attenuation, lhi_gn_signal *signal)
{
    double baud = comb->baud;
    double beta2[LHI_GN_MAX_CHANNELS];
    for (uint32_t i = 0; i < comb->n_channels; i++)
        beta2[i] = compute_beta2(f, get_hz(comb, i));
    for (uint32_t i = 0; i < comb->n_channels; i++) {
        double gamma = compute_gamma(f, get_hz(comb, i)), sum = 0;
        for (uint32_t k = 0; k < comb->n_channels; k++) {
            double b = fabs(beta2[i] + beta2[k]) / 2;
            double apart = comb->spacing_hz * ((double)k - (double)i);
            sum += compute_efficiency(f, attenuation, b, baud, apart, i == k) *
                   signal->power_w[k] * signal->power_w[k];
        }
        signal->share[i] *= 1 - gamma * gamma * sum / (baud * baud);
    }
}

void lhi_gn_propagate(const lhi_gn_comb *comb, const lhi_gn_fibre *fibre,
                      lhi_gn_signal *signal)
{
    lhi_gn_attenuate(comb, fibre->in_db, signal);
    add_interference(comb, fibre, compute_attenuation(fibre), signal);
    lhi_gn_attenuate(
        comb, fibre->loss_db_per_m * fibre->length_m + fibre->out_db, signal);
}

double lhi_gn_compute_interference(const lhi_gn_fibre *fibre, double hz,
                                   double baud, double apart_hz)
{
    double gamma = compute_gamma(fibre, hz);
    double b = fabs(compute_beta2(fibre, hz));
    bool same = fabs(apart_hz) < baud / 2;
    return gamma * gamma / (baud * baud) *
           compute_efficiency(fibre, compute_attenuation(fibre), b, baud,
                              apart_hz, same);
}

double lhi_gn_compute_emission(const lhi_gn_fibre *fibre, double hz,
                               double baud, double nf)
{
    return PLANCK * hz * baud * nf *
           lhi_gn_from_db(fibre->loss_db_per_m * fibre->length_m);
}

/* Returns an amplifier's noise figure (a ratio) at gain gain_db. Below the
 * least gain a pad at the input attenuates; below the highest, the loss between
 * its two stages grows, or a polynomial gives the noise figure. */
static double compute_noise_figure(const lhi_gn_amplifier *a, double gain_db)
{
    double pad = fmax(a->gain_min_db - gain_db, 0);
    double gain = gain_db + pad;
    const lhi_gn_profile *p = a->profile;
    if (p && p->n_coefficients > 0) {
        double nf_db = 0, below = -fmax(a->gain_max_db - gain, 0);
        for (uint32_t i = 0; i < p->n_coefficients; i++)
            nf_db = nf_db * below + p->coefficients[i];
        return lhi_gn_from_db(nf_db + pad);
    }
    double first = gain - a->stage_loss_db - fmax(a->gain_max_db - gain, 0);
    double nf = lhi_gn_from_db(a->nf1_db) + lhi_gn_from_db(a->nf2_db - first);
    return nf * lhi_gn_from_db(pad);
}

/* Returns the gain of the channels' total power, in dB, if each channel has its
 * gain gains[i]. */
static double compute_mean_gain(const lhi_gn_comb *comb,
                                const lhi_gn_signal *signal,
                                const double *gains)
{
    double in = 0, out = 0;
    for (uint32_t i = 0; i < comb->n_channels; i++) {
        in += signal->power_w[i];
        out += signal->power_w[i] * lhi_gn_from_db(gains[i]);
    }
    return lhi_gn_to_db(out / in);
}

/* Returns the slope of a least-squares line through values per channel, per
 * Hz. */
static double fit_slope(const lhi_gn_comb *comb, const double *values)
{
    double mean = ((double)comb->n_channels - 1) / 2, sum = 0, squares = 0;
    for (uint32_t i = 0; i < comb->n_channels; i++) {
        sum += ((double)i - mean) * values[i];
        squares += ((double)i - mean) * ((double)i - mean);
    }
    return squares > 0 ? sum / squares / comb->spacing_hz : 0;
}

/* Returns the mean gain if the gains change by `change` dB of dynamic tilt. */
static double try_change(const lhi_gn_comb *comb, const lhi_gn_signal *signal,
                         const lhi_gn_profile *p, const double *gains,
                         double change)
{
    double tried[LHI_GN_MAX_CHANNELS];
    for (uint32_t i = 0; i < comb->n_channels; i++)
        tried[i] = gains[i] + p->tilt[i] * change;
    return compute_mean_gain(comb, signal, tried);
}

/* Computes each channel's gain so that the total power is amplified by gain_db:
 * the ripple, the tilt as a multiple of the dynamic gain tilt (R. di Muro, "The
 * Er3+ fiber gain coefficient derived from a dynamic gain tilt technique",
 * Journal of Lightwave Technology 18(3), 2000), and one secant step of the
 * multiple towards gain_db, as GNPy's amplifiers do. */
static void compute_gains(const lhi_gn_comb *comb, const lhi_gn_amplifier *a,
                          const lhi_gn_signal *signal, double gain_db,
                          double *gains)
{
    const lhi_gn_profile *p = a->profile;
    uint32_t n = comb->n_channels;
    double slope = fit_slope(comb, p->tilt);
    double scale = fabs(slope) > 0 ? -a->tilt_db / p->band_hz / slope : 0;
    double low = INFINITY, high = -INFINITY, mean = 0;
    for (uint32_t i = 0; i < n; i++) {
        gains[i] = p->gain_db[i] + a->gain_max_db + p->tilt[i] * scale;
        low = fmin(low, gains[i]);
        high = fmax(high, gains[i]);
        mean += lhi_gn_from_db(gains[i]) / n;
    }
    double range = high - low, excess = lhi_gn_to_db(mean) - gain_db;
    for (uint32_t i = 0; i < n; i++)
        gains[i] -= excess;
    if (range <= 0.05) /* GNPy's threshold, in dB, for a flat gain */
        return;
    double change = gain_db - compute_mean_gain(comb, signal, gains);
    double got = try_change(comb, signal, p, gains, change);
    double side = gain_db < got ? -range : range;
    double beside = try_change(comb, signal, p, gains, change + side);
    /* Without dynamic tilt a change has no effect. */
    if (fabs(gain_db - got) > 1e-11 && fabs(beside - got) > 0)
        change += (gain_db - got) * side / (beside - got);
    for (uint32_t i = 0; i < n; i++)
        gains[i] += p->tilt[i] * change;
}

void lhi_gn_amplify(const lhi_gn_comb *comb, const lhi_gn_amplifier *amplifier,
                    lhi_gn_signal *signal)
{
    double total = 0;
    lhi_gn_attenuate(comb, amplifier->in_voa_db, signal);
    for (uint32_t i = 0; i < comb->n_channels; i++)
        total += signal->power_w[i];
    double gain = fmin(amplifier->gain_db,
                       amplifier->power_max_dbm - lhi_gn_to_db(1000 * total));
    double nf = compute_noise_figure(amplifier, gain);
    const lhi_gn_profile *p = amplifier->profile;
    double gains[LHI_GN_MAX_CHANNELS];
    if (p)
        compute_gains(comb, amplifier, signal, gain, gains);
    for (uint32_t i = 0; i < comb->n_channels; i++) {
        double noise = PLANCK * comb->baud * get_hz(comb, i) * nf;
        if (p)
            noise *= lhi_gn_from_db(p->noise_db[i]);
        signal->share[i] *= signal->power_w[i] / (signal->power_w[i] + noise);
        signal->power_w[i] += noise;
        if (p)
            signal->power_w[i] *= lhi_gn_from_db(gains[i]);
    }
    lhi_gn_attenuate(comb, amplifier->out_voa_db - (p ? 0 : gain), signal);
}
