/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an amplifier's gain and noise over frequency. */
#include "network/optical/gnpy.h"

#include <math.h>

enum { MAX_POINTS = 100000 };

/* Reads a list of values at equally spaced frequencies from the first to the
 * last of the band, interpolated linearly at each channel; beyond the band the
 * value at its end counts. All are 0 if the key is absent and not `needed`. */
static lh_status read_curve(const lhi_doc *doc, const char *key, bool needed,
                            const double band_hz[2], const lhi_gn_comb *comb,
                            lhi_arena *mem, double *out, lh_error *err)
{
    const lhi_node *list = lhi_node_find(doc->root, key);
    if (!list && !needed)
        return LH_OK;
    LHI_TRY(lhi_node_require(doc, doc->root, key, &list, err));
    LHI_TRY(lhi_node_check_list(doc, list, err));
    if (list->n_items < 1 || list->n_items > MAX_POINTS)
        return lhi_doc_fail(doc, list, err, LH_EINPUT, "needs 1 to %d values",
                            MAX_POINTS);
    double *values = LHI_NEW(mem, double, list->n_items);
    if (!values)
        return lhi_fail_nomem(err);
    uint32_t n = 0;
    for (const lhi_node *v = list->first; v; v = v->next)
        LHI_TRY(lhi_node_get_number(doc, v, -100, 100, &values[n++], err));
    for (uint32_t i = 0; i < comb->n_channels; i++) {
        double hz = comb->first_hz + comb->spacing_hz * i;
        double at =
            (hz - band_hz[0]) / (band_hz[1] - band_hz[0]) * (double)(n - 1);
        at = fmin(fmax(at, 0), (double)(n - 1));
        uint32_t below = (uint32_t)at;
        uint32_t above = below + 1 < n ? below + 1 : below;
        out[i] = values[below] +
                 (values[above] - values[below]) * (at - (double)below);
    }
    return LH_OK;
}

/* Reads the band and the curves of a parsed profile. */
static lh_status read_curves(const lhi_doc *doc, const lhi_gn_comb *comb,
                             lhi_arena *mem, double band_hz[2],
                             lhi_gn_profile *out, lh_error *err)
{
    for (int i = 0; i < 2; i++) {
        const lhi_node *node;
        const char *key = i == 0 ? "f_min" : "f_max";
        if (band_hz[i] > 0)
            continue;
        LHI_TRY(lhi_node_require(doc, doc->root, key, &node, err));
        LHI_TRY(lhi_node_get_number(doc, node, 1e12, 1e15, &band_hz[i], err));
    }
    out->band_hz = band_hz[1] - band_hz[0];
    double first = comb->first_hz - comb->spacing_hz / 2;
    double end = first + comb->spacing_hz * comb->n_channels;
    /* One hertz for the rounding of sums. */
    if (!(band_hz[0] <= first + 1 && band_hz[1] >= end - 1))
        return lhi_doc_fail(doc, doc->root, err, LH_EINPUT,
                            "the amplifier's band from f_min to f_max, %.6g "
                            "to %.6g THz, must contain all channels of SI, "
                            "%.6g to %.6g THz",
                            band_hz[0] / 1e12, band_hz[1] / 1e12, first / 1e12,
                            end / 1e12);
    LHI_TRY(read_curve(doc, "dgt", true, band_hz, comb, mem, out->tilt, err));
    LHI_TRY(read_curve(doc, "gain_ripple", false, band_hz, comb, mem,
                       out->gain_db, err));
    return read_curve(doc, "nf_ripple", false, band_hz, comb, mem,
                      out->noise_db, err);
}

/* Reads the coefficients of the noise figure of a parsed profile. */
static lh_status read_coefficients(const lhi_doc *doc, lhi_gn_profile *out,
                                   lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_node_require(doc, doc->root, "nf_fit_coeff", &list, err));
    LHI_TRY(lhi_node_check_list(doc, list, err));
    if (list->n_items < 1 || list->n_items > LHI_GN_MAX_COEFFICIENTS)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "needs 1 to %d coefficients",
                            LHI_GN_MAX_COEFFICIENTS);
    for (const lhi_node *v = list->first; v; v = v->next)
        LHI_TRY(lhi_node_get_number(
            doc, v, -1e6, 1e6, &out->coefficients[out->n_coefficients++], err));
    return LH_OK;
}

lh_status lhi_gn_profile_read(const char *path, bool advanced,
                              const lhi_gn_comb *comb, lhi_arena *mem,
                              double band_hz[2], lhi_gn_profile *out,
                              lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_TOPOLOGY, &doc, err));
    lh_status status = read_curves(doc, comb, mem, band_hz, out, err);
    if (status == LH_OK && advanced)
        status = read_coefficients(doc, out, err);
    lhi_doc_free(doc);
    return status;
}
