/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the profiles of paths inside ROADMs (optical switches). */
#include "network/optical/gnpy.h"

#include <string.h>

/* Returns the first path profile of this kind in a ROADM's equipment; NULL:
 * there is none. */
static const lhi_node *find_profile(const lhi_node *type, const char *kind)
{
    const lhi_node *list = lhi_node_find(type, "roadm-path-impairments");
    for (const lhi_node *n = list ? list->first : NULL; n; n = n->next)
        if (lhi_node_find(n, kind))
            return n;
    return NULL;
}

/* Checks whether a path profile has the id at `wanted`. */
static bool has_id(const lhi_node *profile, const lhi_node *wanted)
{
    const lhi_node *id = lhi_node_find(profile, "roadm-path-impairments-id");
    return id && id->kind == LHI_SCALAR && wanted->kind == LHI_SCALAR &&
           strcmp(id->text, wanted->text) == 0;
}

/* Checks whether the path profile with this id is in a ROADM's equipment, and
 * is the first one of its kind. */
static bool is_first_profile(const lhi_node *type, const lhi_node *id)
{
    static const char *const kinds[] = {"roadm-add-path", "roadm-drop-path",
                                        "roadm-express-path"};
    const lhi_node *list = lhi_node_find(type, "roadm-path-impairments");
    const lhi_node *n = list ? list->first : NULL;
    while (n && !has_id(n, id))
        n = n->next;
    for (size_t i = 0; n && i < sizeof kinds / sizeof *kinds; i++)
        if (lhi_node_find(n, kinds[i]) && find_profile(type, kinds[i]) != n)
            return false;
    return n;
}

lh_status lhi_gnpy_check_profiles(const lhi_doc *net, const lhi_node *roadm,
                                  const lhi_node *type, lh_error *err)
{
    const lhi_node *params = lhi_node_find(roadm, "params"), *id;
    const lhi_node *list =
        params ? lhi_node_find(params, "per_degree_impairments") : NULL;
    for (const lhi_node *n = list ? list->first : NULL; n; n = n->next) {
        LHI_TRY(lhi_node_require(net, n, "impairment_id", &id, err));
        if (!lhi_node_is_null(id) && !is_first_profile(type, id))
            return lhi_doc_fail(net, id, err, LH_EINPUT,
                                "only the first profile of each kind of path "
                                "in roadm-path-impairments is modelled");
    }
    return LH_OK;
}

lh_status lhi_gnpy_find_path_entry(const lhi_doc *eqpt, const lhi_node *type,
                                   const char *kind, const lhi_gn_comb *comb,
                                   const lhi_node **out, lh_error *err)
{
    static const char *const keys[] = {"lower-frequency", "upper-frequency"};
    const lhi_node *profile = find_profile(type, kind), *range, *node;
    double last = comb->first_hz + (comb->n_channels - 1) * comb->spacing_hz;
    *out = NULL;
    if (!profile)
        return LH_OK;
    const lhi_node *entries = lhi_node_find(profile, kind);
    for (const lhi_node *e = entries->first; e; e = e->next) {
        double hz[2];
        LHI_TRY(lhi_node_require(eqpt, e, "frequency-range", &range, err));
        for (int i = 0; i < 2; i++) {
            LHI_TRY(lhi_node_require(eqpt, range, keys[i], &node, err));
            LHI_TRY(
                lhi_node_get_number(eqpt, node, -1e300, 1e300, &hz[i], err));
        }
        if (hz[0] <= comb->first_hz && hz[1] >= last) {
            *out = e;
            return LH_OK;
        }
    }
    return lhi_doc_fail(eqpt, entries, err, LH_EINPUT,
                        "no entry covers the frequencies of all channels (SI)");
}
