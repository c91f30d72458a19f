/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/load_gsnr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Longest span between two amplifiers, m; noise figure of amplifiers, dB. */
#define SPAN_M 100e3
#define NOISE_FIGURE_DB 5.0
/* A slot's width and symbol rate; frequency of light at 1550 nm. */
#define SLOT_HZ 12.5e9
#define LIGHT_HZ 193.41e12

/* Two polarisations share the rate and the width, so a slot carries as many
 * bits per symbol as the format. SNR per symbol for a bit error ratio of 1e-3:
 * 16QAM, QPSK, BPSK. */
const lhi_load_format lhi_load_formats[LHI_N_LOAD_FORMATS] = {
    {50000, 16.5}, {25000, 9.8}, {12500, 6.8}};

lhi_gn_fibre lhi_load_gsnr_fibre(double length_m)
{
    return (lhi_gn_fibre){.length_m = length_m,
                          .loss_db_per_m = 0.2e-3,
                          .dispersion = 1.67e-5,
                          .area_m2 = 83e-12};
}

/* Returns the power per slot at which noise is least on spans of the maximum
 * length with all slots in use: there, the amplifier emits twice as much as the
 * interference. */
static double compute_launch(uint32_t slots)
{
    lhi_gn_fibre f = lhi_load_gsnr_fibre(SPAN_M);
    double sum = 0;
    for (uint32_t d = 0; d < slots; d++)
        sum += lhi_gn_compute_interference(
            &f, LIGHT_HZ, SLOT_HZ, SLOT_HZ * ((double)d - (double)(slots / 2)));
    double emitted = lhi_gn_compute_emission(&f, LIGHT_HZ, SLOT_HZ,
                                             lhi_gn_from_db(NOISE_FIGURE_DB));
    return cbrt(emitted / (2 * sum));
}

/* Returns a ratio in units of LHI_LOAD_UNIT. */
static int64_t to_units(double ratio)
{
    return (int64_t)(ratio / LHI_LOAD_UNIT + 0.5);
}

/* Computes the noise of a cable's spans: emission, and interference sums. */
static void set_cable(lhi_load_gsnr *g, uint32_t cable)
{
    uint32_t slots = g->network->slots;
    double length = (double)g->network->topology->cables[cable].length_m;
    double n = ceil(length / SPAN_M), p = g->launch_w;
    lhi_gn_fibre f = lhi_load_gsnr_fibre(length / n);
    int64_t sum = 0;
    g->emitted[cable] =
        to_units(n / p *
                 lhi_gn_compute_emission(&f, LIGHT_HZ, SLOT_HZ,
                                         lhi_gn_from_db(NOISE_FIGURE_DB)));
    for (uint32_t d = 0; d < slots; d++) {
        sum += to_units(
            n * p * p *
            lhi_gn_compute_interference(&f, LIGHT_HZ, SLOT_HZ, SLOT_HZ * d));
        g->sums[(size_t)cable * slots + d] = sum;
    }
}

lh_status lhi_load_gsnr_init(const lhi_network *network, lhi_load_gsnr *out,
                             lh_error *err)
{
    size_t fibres = lhi_network_n_fibres(network), slots = network->slots;
    size_t cables = network->topology->n_cables;
    *out = (lhi_load_gsnr){.network = network,
                           .launch_w = compute_launch(network->slots),
                           .emitted = calloc(cables, sizeof(int64_t)),
                           .sums = calloc(cables * slots, sizeof(int64_t)),
                           .n_on = calloc(fibres, sizeof(uint32_t)),
                           .on = calloc(fibres * slots, sizeof(uint32_t))};
    if (!out->emitted || !out->sums || !out->n_on || !out->on)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < LHI_N_LOAD_FORMATS; m++)
        out->most[m] = to_units(lhi_gn_from_db(-lhi_load_formats[m].snr_db));
    for (uint32_t c = 0; c < cables; c++)
        set_cable(out, c);
    return LH_OK;
}

void lhi_load_gsnr_fini(lhi_load_gsnr *g)
{
    free(g->emitted);
    free(g->sums);
    free(g->n_on);
    free(g->on);
    free(g->circuits);
    free(g->rises);
    free(g->raised);
    *g = (lhi_load_gsnr){0};
}

/* Returns the interference sums of a fibre's cable. */
static const int64_t *get_sums(const lhi_load_gsnr *g, uint32_t fibre)
{
    return g->sums +
           (size_t)lhi_network_get_cable(g->network, fibre) * g->network->slots;
}

/* Returns the interference with slot `at` from slots first..end-1. */
static inline int64_t sum_block(const int64_t *sums, uint32_t at,
                                uint32_t first, uint32_t end)
{
    if (at < first)
        return sums[end - 1 - at] - sums[first - 1 - at];
    if (at >= end)
        return sums[at - first] - sums[at - end];
    return sums[at - first] + sums[end - 1 - at] - sums[0];
}

/* Returns the slot at which a circuit's noise is computed. */
static inline uint32_t get_middle(const lhi_load_circuit *c)
{
    return (c->first + c->end - 1) / 2;
}

/* Computes a circuit's noise on its path, from itself and all others in use. */
static int64_t compute_noise(const lhi_load_gsnr *g, const lhi_load_circuit *c)
{
    int64_t noise = 0;
    uint32_t middle = get_middle(c);
    for (uint32_t h = 0; h < c->path->hops; h++) {
        uint32_t fibre = c->path->fibres[h];
        const int64_t *sums = get_sums(g, fibre);
        const uint32_t *on = g->on + (size_t)fibre * g->network->slots;
        noise += g->emitted[lhi_network_get_cable(g->network, fibre)] +
                 sum_block(sums, middle, c->first, c->end);
        for (uint32_t i = 0; i < g->n_on[fibre]; i++) {
            const lhi_load_circuit *o = &g->circuits[on[i]];
            noise += sum_block(sums, middle, o->first, o->end);
        }
    }
    return noise;
}

/* Clears the noise increases by the request under examination. */
static void clear_rises(lhi_load_gsnr *g)
{
    while (g->n_raised > 0)
        g->rises[g->raised[--g->n_raised]] = 0;
}

/* Computes into g->rises how much circuit `c` raises the noise of all circuits
 * on its path. Returns false if the noise of one of them exceeds its limit. */
static bool raise_others(lhi_load_gsnr *g, const lhi_load_circuit *c)
{
    clear_rises(g);
    for (uint32_t h = 0; h < c->path->hops; h++) {
        uint32_t fibre = c->path->fibres[h];
        const int64_t *sums = get_sums(g, fibre);
        const uint32_t *on = g->on + (size_t)fibre * g->network->slots;
        for (uint32_t i = 0; i < g->n_on[fibre]; i++) {
            const lhi_load_circuit *o = &g->circuits[on[i]];
            int64_t *rise = &g->rises[on[i]];
            int64_t more = sum_block(sums, get_middle(o), c->first, c->end);
            if (more == 0)
                continue;
            if (*rise == 0)
                g->raised[g->n_raised++] = on[i];
            *rise += more;
            if (o->noise + *rise > o->most)
                return false;
        }
    }
    return true;
}

/* Computes the noise of a circuit with one of the formats from `least` (the
 * fastest one) to `last`, and how much it raises that of others. Returns the
 * fastest format with which no circuit has too much; LHI_N_LOAD_FORMATS: there
 * is none. */
static uint32_t examine(lhi_load_gsnr *g, lhi_load_circuit c, uint32_t least,
                        uint32_t last)
{
    g->examined.path = NULL;
    c.noise = compute_noise(g, &c);
    uint32_t m = least;
    while (m <= last && c.noise > g->most[m])
        m++;
    if (m > last || !raise_others(g, &c))
        return LHI_N_LOAD_FORMATS;
    g->examined = c;
    return m;
}

int64_t lhi_load_gsnr_accept(lhi_load_gsnr *g, const lhi_path *path,
                             uint32_t first, uint32_t slots)
{
    lhi_load_circuit c = {.path = path, .first = first, .end = first + slots};
    uint32_t m = examine(g, c, 0, LHI_N_LOAD_FORMATS - 1);
    return m < LHI_N_LOAD_FORMATS ? lhi_load_formats[m].mbps : 0;
}

bool lhi_load_gsnr_first_fit(lhi_load_gsnr *g, const lhi_spectrum *spectrum,
                             const lhi_paths *paths, uint32_t gbps,
                             lhi_circuit_grant *grant)
{
    uint64_t starts[LHI_MAX_WORDS];
    for (uint32_t i = 0; i < paths->count; i++)
        for (uint32_t m = 0; m < LHI_N_LOAD_FORMATS; m++) {
            const lhi_path *p = &paths->paths[i];
            int64_t mbps = lhi_load_formats[m].mbps;
            int64_t slots = ((int64_t)gbps * 1000 + mbps - 1) / mbps;
            uint32_t width = (uint32_t)slots + spectrum->guard;
            if (slots > spectrum->slots ||
                !lhi_path_starts(spectrum, p, width, starts))
                break; /* slower formats need more slots */
            uint32_t first = lhi_first_slot(starts);
            lhi_load_circuit c = {
                .path = p, .first = first, .end = first + (uint32_t)slots};
            if (examine(g, c, m, m) == LHI_N_LOAD_FORMATS)
                continue;
            *grant = (lhi_circuit_grant){p, first, width, mbps};
            return true;
        }
    return false;
}

/* Doubles the capacity for circuits until index `at` fits; false on allocation
 * failure. */
static bool reserve(lhi_load_gsnr *g, uint32_t at)
{
    uint32_t n = g->n_circuits;
    if (at < n)
        return true;
    while (n <= at)
        n = n ? 2 * n : 256;
    lhi_load_circuit *circuits = realloc(g->circuits, n * sizeof *g->circuits);
    if (circuits)
        g->circuits = circuits;
    int64_t *rises = realloc(g->rises, n * sizeof *g->rises);
    if (rises)
        g->rises = rises;
    uint32_t *raised = realloc(g->raised, n * sizeof *g->raised);
    if (raised)
        g->raised = raised;
    if (!circuits || !rises || !raised)
        return false;
    memset(g->circuits + g->n_circuits, 0,
           (n - g->n_circuits) * sizeof *g->circuits);
    memset(g->rises + g->n_circuits, 0, (n - g->n_circuits) * sizeof *g->rises);
    g->n_circuits = n;
    return true;
}

/* Returns the noise that the format with this rate permits. */
static int64_t get_most(const lhi_load_gsnr *g, int64_t mbps)
{
    uint32_t m = 0;
    while (m + 1 < LHI_N_LOAD_FORMATS && lhi_load_formats[m].mbps != mbps)
        m++;
    return g->most[m];
}

bool lhi_load_gsnr_add(lhi_load_gsnr *g, uint32_t at,
                       const lhi_circuit_grant *grant)
{
    uint32_t end = grant->first + grant->slots - g->network->guard_slots;
    lhi_load_circuit c = {
        .path = grant->path, .first = grant->first, .end = end};
    /* A policy may have examined other blocks after the one it chose. */
    if (g->examined.path != c.path || g->examined.first != c.first ||
        g->examined.end != c.end)
        (void)examine(g, c, 0, LHI_N_LOAD_FORMATS - 1);
    assert(g->examined.path == c.path);
    c = g->examined;
    c.most = get_most(g, grant->mbps);
    g->examined.path = NULL;
    for (uint32_t i = 0; i < g->n_raised; i++)
        g->circuits[g->raised[i]].noise += g->rises[g->raised[i]];
    clear_rises(g);
    if (!reserve(g, at))
        return false;
    g->circuits[at] = c;
    for (uint32_t h = 0; h < c.path->hops; h++) {
        uint32_t fibre = c.path->fibres[h];
        g->on[(size_t)fibre * g->network->slots + g->n_on[fibre]++] = at;
    }
    return true;
}

void lhi_load_gsnr_remove(lhi_load_gsnr *g, uint32_t at)
{
    lhi_load_circuit *c = &g->circuits[at];
    g->examined.path = NULL;
    for (uint32_t h = 0; h < c->path->hops; h++) {
        uint32_t fibre = c->path->fibres[h], i = 0;
        const int64_t *sums = get_sums(g, fibre);
        uint32_t *on = g->on + (size_t)fibre * g->network->slots;
        while (on[i] != at)
            i++;
        on[i] = on[--g->n_on[fibre]];
        for (i = 0; i < g->n_on[fibre]; i++) {
            lhi_load_circuit *o = &g->circuits[on[i]];
            o->noise -= sum_block(sums, get_middle(o), c->first, c->end);
        }
    }
    c->path = NULL;
}
