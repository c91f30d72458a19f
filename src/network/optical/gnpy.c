/* SPDX-License-Identifier: Apache-2.0 */
/* Reads networks in GNPy's form. */
#include "network/optical/gnpy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 65536 };

/* Width of a slot. */
#define SLOT_HZ 12.5e9

/* An element of the network file. */
typedef struct element {
    const char *uid, *type;
    const lhi_node *map;
    uint32_t node;          /* ROADM: its number; else LH_NONE */
    uint32_t first, n_next; /* into the targets */
} element;

/* A line between two ROADMs. */
typedef struct line {
    uint32_t from, to;
    int64_t length_m;
    bool paired;
    double *shares;
} line;

/* The profile of an amplifier type. */
typedef struct type_profile {
    const lhi_node *type;
    const lhi_gn_profile *profile;
} type_profile;

/* A reader's state. */
typedef struct reader {
    const lhi_doc *net, *eqpt;
    lhi_arena *mem;
    lhi_gnpy_network *out;
    element *elements; /* by uid */
    uint32_t n_elements;
    uint32_t *targets; /* of connections, by source */
    line *lines;
    uint32_t n_lines;
    const char **files; /* [LHI_MAX_FILES], as opened */
    type_profile profiles[LHI_MAX_FILES];
    uint32_t n_profiles;
    lh_error *err;
} reader;

/* Fails with LH_EINPUT if a property of the network file is null: GNPy's design
 * has not set it. */
static lh_status check_designed(const reader *r, const lhi_doc *doc,
                                const lhi_node *node)
{
    if (doc != r->net || !lhi_node_is_null(node))
        return LH_OK;
    return lhi_doc_fail(doc, node, r->err, LH_EINPUT,
                        "is not set; save the network after GNPy's design "
                        "(--save-network)");
}

/* Reads the number of a required key of `map` into *out. LH_EINPUT: the key is
 * missing or its value is no number. */
static lh_status need_number(const reader *r, const lhi_doc *doc,
                             const lhi_node *map, const char *key, double *out)
{
    const lhi_node *node;
    LHI_TRY(lhi_node_require(doc, map, key, &node, r->err));
    LHI_TRY(check_designed(r, doc, node));
    return lhi_node_get_number(doc, node, -1e300, 1e300, out, r->err);
}

/* Reads the number of an optional key into *out; unchanged if `map` is NULL, or
 * the key is absent or null. */
static lh_status get_number(const reader *r, const lhi_doc *doc,
                            const lhi_node *map, const char *key, double *out)
{
    const lhi_node *node = map ? lhi_node_find(map, key) : NULL;
    if (!node || lhi_node_is_null(node))
        return LH_OK;
    return lhi_node_get_number(doc, node, -1e300, 1e300, out, r->err);
}

/* Returns the text of a map's key; "" if it is absent or no scalar. */
static const char *get_text(const lhi_node *map, const char *key)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node && node->kind == LHI_SCALAR ? node->text : "";
}

/* Finds the equipment file's entry with this kind (such as "Edfa") and
 * type_variety. `of`: the element that refers to it, for the error message.
 * LH_EINPUT: there is none. */
static lh_status find_equipment(const reader *r, const char *kind,
                                const char *variety, const lhi_node *of,
                                const lhi_node **out)
{
    const lhi_node *list;
    LHI_TRY(lhi_node_require(r->eqpt, r->eqpt->root, kind, &list, r->err));
    LHI_TRY(lhi_node_check_list(r->eqpt, list, r->err));
    for (const lhi_node *n = list->first; n; n = n->next) {
        const char *name = get_text(n, "type_variety");
        if (strcmp(*name ? name : "default", *variety ? variety : "default") ==
            0) {
            *out = n;
            return LH_OK;
        }
    }
    return lhi_doc_fail(r->net, of, r->err, LH_EINPUT,
                        "%.80s has no %s of type_variety '%.60s'",
                        r->eqpt->file, kind, *variety ? variety : "default");
}

/* --- elements ------------------------------------------------------------- */

/* Orders the network file's elements by uid, for qsort(). */
static int compare_elements(const void *a, const void *b)
{
    return strcmp(((const element *)a)->uid, ((const element *)b)->uid);
}

/* Returns the network file's element with this uid, or NULL; elements must be
 * sorted. */
static element *find_element(const reader *r, const char *uid)
{
    element key = {.uid = uid};
    return bsearch(&key, r->elements, r->n_elements, sizeof key,
                   compare_elements);
}

/* Reads the network file's elements, numbers the ROADMs (optical switches,
 * which become nodes) in file order, and sorts the elements by uid. */
static lh_status read_elements(reader *r)
{
    const lhi_node *list, *value;
    LHI_TRY(lhi_node_require(r->net, r->net->root, "elements", &list, r->err));
    LHI_TRY(lhi_node_check_list(r->net, list, r->err));
    if (list->n_items < 1 || list->n_items > MAX_ELEMENTS)
        return lhi_doc_fail(r->net, list, r->err, LH_EINPUT,
                            "%" PRIu32 " elements; 1 to %d are possible",
                            list->n_items, MAX_ELEMENTS);
    r->elements = LHI_NEW(r->mem, element, list->n_items);
    r->out->names = LHI_NEW(r->mem, const char *, list->n_items);
    if (!r->elements || !r->out->names)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        element *e = &r->elements[r->n_elements++];
        *e = (element){.map = n, .node = LH_NONE};
        LHI_TRY(lhi_node_check_map(r->net, n, r->err));
        LHI_TRY(lhi_node_require(r->net, n, "uid", &value, r->err));
        LHI_TRY(lhi_node_get_string(r->net, value, &e->uid, r->err));
        LHI_TRY(lhi_node_require(r->net, n, "type", &value, r->err));
        LHI_TRY(lhi_node_get_string(r->net, value, &e->type, r->err));
        if (strcmp(e->type, "Roadm") != 0)
            continue;
        const char *name =
            strncmp(e->uid, "roadm ", 6) == 0 ? e->uid + 6 : e->uid;
        e->node = r->out->n_nodes;
        r->out->names[e->node] = lhi_arena_strdup(r->mem, name);
        if (!r->out->names[r->out->n_nodes++])
            return lhi_fail_nomem(r->err);
    }
    if (r->out->n_nodes < 2 || r->out->n_nodes > LHI_MAX_NODES)
        return lhi_doc_fail(r->net, list, r->err, LH_EINPUT,
                            "%" PRIu32 " elements of type Roadm; a topology "
                            "has 2 to %d",
                            r->out->n_nodes, LHI_MAX_NODES);
    qsort(r->elements, r->n_elements, sizeof *r->elements, compare_elements);
    for (uint32_t i = 1; i < r->n_elements; i++)
        if (strcmp(r->elements[i].uid, r->elements[i - 1].uid) == 0)
            return lhi_doc_fail(r->net, r->elements[i].map, r->err, LH_EINPUT,
                                "two elements have the uid '%.60s'",
                                r->elements[i].uid);
    return LH_OK;
}

/* Finds the element whose uid a connection names under `key` ("from_node" or
 * "to_node"). LH_EINPUT: there is none. */
static lh_status read_end(const reader *r, const lhi_node *map, const char *key,
                          element **out)
{
    const lhi_node *value;
    const char *uid;
    LHI_TRY(lhi_node_require(r->net, map, key, &value, r->err));
    LHI_TRY(lhi_node_get_string(r->net, value, &uid, r->err));
    *out = find_element(r, uid);
    if (!*out)
        return lhi_doc_fail(r->net, value, r->err, LH_EINPUT,
                            "there is no element '%.60s'", uid);
    return LH_OK;
}

/* Reads the directed connections and stores each element's successors:
 * r->targets from element.first on, element.n_next of them. */
static lh_status read_connections(reader *r)
{
    const lhi_node *list;
    element *from, *to;
    LHI_TRY(
        lhi_node_require(r->net, r->net->root, "connections", &list, r->err));
    LHI_TRY(lhi_node_check_list(r->net, list, r->err));
    r->targets = LHI_NEW(r->mem, uint32_t, (size_t)list->n_items + 1);
    if (!r->targets)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        LHI_TRY(lhi_node_check_map(r->net, n, r->err));
        LHI_TRY(read_end(r, n, "from_node", &from));
        LHI_TRY(read_end(r, n, "to_node", &to));
        from->n_next++;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < r->n_elements; i++) {
        r->elements[i].first = at;
        at += r->elements[i].n_next;
        r->elements[i].n_next = 0;
    }
    for (const lhi_node *n = list->first; n; n = n->next) {
        LHI_TRY(read_end(r, n, "from_node", &from));
        LHI_TRY(read_end(r, n, "to_node", &to));
        r->targets[from->first + from->n_next++] = (uint32_t)(to - r->elements);
    }
    return LH_OK;
}

/* --- lines ---------------------------------------------------------------- */

/* Reads a fibre element with its equipment, adds its length to the line, and
 * updates the channels' powers and signal shares. */
static lh_status pass_fibre(const reader *r, const element *e, line *l,
                            lhi_gn_signal *signal)
{
    const lhi_node *type, *params, *node;
    double length = 0, loss = 0, in = 0, out = 0, pad = 0;
    lhi_gn_fibre f = {.dispersion = 1.67e-5, .area_m2 = 83e-12};
    LHI_TRY(find_equipment(r, "Fiber", get_text(e->map, "type_variety"), e->map,
                           &type));
    LHI_TRY(lhi_node_require(r->net, e->map, "params", &params, r->err));
    LHI_TRY(need_number(r, r->net, params, "length", &length));
    LHI_TRY(need_number(r, r->net, params, "loss_coef", &loss));
    LHI_TRY(get_number(r, r->net, params, "att_in", &pad));
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "con_in" : "con_out";
        node = lhi_node_find(params, key);
        if (node)
            LHI_TRY(check_designed(r, r->net, node));
        LHI_TRY(get_number(r, r->net, params, key, i == 0 ? &in : &out));
    }
    LHI_TRY(get_number(r, r->eqpt, type, "dispersion", &f.dispersion));
    LHI_TRY(
        get_number(r, r->eqpt, type, "dispersion_slope", &f.dispersion_slope));
    LHI_TRY(get_number(r, r->eqpt, type, "effective_area", &f.area_m2));
    f.length_m =
        length *
        (strcmp(get_text(params, "length_units"), "m") == 0 ? 1 : 1000);
    f.loss_db_per_m = loss / 1000;
    f.in_db = in + pad;
    f.out_db = out;
    if (!(f.length_m >= 0 && f.length_m <= 1e8 && loss > 0 && loss < 100 &&
          f.area_m2 > 1e-12 && f.area_m2 < 1e-9 && f.dispersion > 0))
        return lhi_doc_fail(r->net, params, r->err, LH_EINPUT,
                            "the length, loss, area or dispersion of the fibre "
                            "is out of range");
    l->length_m += (int64_t)(f.length_m + 0.5);
    lhi_gn_propagate(&r->out->gn->comb, &f, signal);
    return LH_OK;
}

/* Computes an amplifier's stage parameters, so that its noise figure (dB) is
 * nf_min at the highest and nf_max at the lowest gain. The second stage's noise
 * counts divided by the first's gain, and its noise figure is 0.3 to 2 dB
 * higher; the loss between them is 5 dB if that fits. */
static void fit_stages(double nf_min, double nf_max, lhi_gn_amplifier *a)
{
    double low = lhi_gn_from_db(nf_min), high = lhi_gn_from_db(nf_max);
    double range = a->gain_max_db - a->gain_min_db;
    a->stage_loss_db = 5;
    double before_max = lhi_gn_from_db(a->gain_max_db - a->stage_loss_db);
    double before_min =
        lhi_gn_from_db(a->gain_min_db - range - a->stage_loss_db);
    a->nf2_db = lhi_gn_to_db((low - high) / (1 / before_max - 1 / before_min));
    a->nf1_db = lhi_gn_to_db(low - lhi_gn_from_db(a->nf2_db) / before_max);
    if (a->nf2_db > a->nf1_db + 0.3 && a->nf2_db < a->nf1_db + 2)
        return;
    a->nf2_db = fmin(fmax(a->nf2_db, a->nf1_db + 0.3), a->nf1_db + 2);
    a->stage_loss_db =
        a->gain_max_db - lhi_gn_to_db(lhi_gn_from_db(a->nf2_db) /
                                      (low - lhi_gn_from_db(a->nf1_db)));
}

/* Reads the gain and noise over frequency from the file that an amplifier's
 * type names, relative to the equipment file; NULL: it names none. `advanced`:
 * the file has the noise figure, too. */
static lh_status read_profile(reader *r, const lhi_node *type, bool advanced,
                              const lhi_gn_profile **out)
{
    const lhi_node *name = lhi_node_find(type, "default_config_from_json");
    double band_hz[2] = {0, 0};
    *out = NULL;
    if (advanced)
        LHI_TRY(lhi_node_require(r->eqpt, type, "advanced_config_from_json",
                                 &name, r->err));
    for (uint32_t i = 0; i < r->n_profiles; i++)
        if (r->profiles[i].type == type)
            *out = r->profiles[i].profile;
    if (!name || *out)
        return LH_OK;
    if (r->n_profiles + 2 == LHI_MAX_FILES)
        return lhi_doc_fail(r->eqpt, name, r->err, LH_EINPUT,
                            "at most %d types of amplifiers in use may "
                            "have a gain profile",
                            LHI_MAX_FILES - 2);
    LHI_TRY(get_number(r, r->eqpt, type, "f_min", &band_hz[0]));
    LHI_TRY(get_number(r, r->eqpt, type, "f_max", &band_hz[1]));
    const char **path = &r->files[r->n_profiles + 2];
    LHI_TRY(lhi_optical_resolve_file(r->eqpt, name, r->mem, path, r->err));
    lhi_gn_profile *profile = LHI_NEW(r->mem, lhi_gn_profile, 1);
    if (!profile)
        return lhi_fail_nomem(r->err);
    LHI_TRY(lhi_gn_profile_read(*path, advanced, &r->out->gn->comb, r->mem,
                                band_hz, profile, r->err));
    r->profiles[r->n_profiles++] = (type_profile){type, profile};
    *out = profile;
    return LH_OK;
}

/* Reads an amplifier element and its equipment into *a. LH_EINPUT: a property
 * is not modelled, or a gain tilt lacks the profile of its type. */
static lh_status read_amplifier(reader *r, const element *e,
                                lhi_gn_amplifier *a)
{
    const lhi_node *type, *set;
    double nf_min = 0, nf_max = 0;
    *a = (lhi_gn_amplifier){.nf2_db = -INFINITY};
    const char *variety = get_text(e->map, "type_variety");
    if (!*variety)
        return lhi_doc_fail(r->net, e->map, r->err, LH_EINPUT,
                            "the amplifier has no type_variety; save the "
                            "network after GNPy's design (--save-network)");
    LHI_TRY(find_equipment(r, "Edfa", variety, e->map, &type));
    LHI_TRY(lhi_node_require(r->net, e->map, "operational", &set, r->err));
    LHI_TRY(need_number(r, r->net, set, "gain_target", &a->gain_db));
    LHI_TRY(get_number(r, r->net, set, "in_voa", &a->in_voa_db));
    LHI_TRY(get_number(r, r->net, set, "out_voa", &a->out_voa_db));
    LHI_TRY(get_number(r, r->net, set, "tilt_target", &a->tilt_db));
    const char *model = get_text(type, "type_def");
    bool is_fixed = strcmp(model, "fixed_gain") == 0;
    bool advanced = strcmp(model, "advanced_model") == 0;
    if (!is_fixed && !advanced && strcmp(model, "variable_gain") != 0)
        return lhi_doc_fail(r->eqpt, type, r->err, LH_EINPUT,
                            "an amplifier of type_def '%.40s' is not modelled; "
                            "fixed_gain, variable_gain and advanced_model are",
                            model);
    LHI_TRY(read_profile(r, type, advanced, &a->profile));
    if ((a->tilt_db > 0 || a->tilt_db < 0) && !a->profile)
        return lhi_doc_fail(r->net, lhi_node_find(set, "tilt_target"), r->err,
                            LH_EINPUT,
                            "the gain tilt over frequency is unknown; give the "
                            "type '%.60s' default_config_from_json, a file "
                            "with GNPy's dgt, in the equipment, or set the "
                            "tilt to 0",
                            variety);
    LHI_TRY(need_number(r, r->eqpt, type, "gain_min", &a->gain_min_db));
    LHI_TRY(need_number(r, r->eqpt, type, "gain_flatmax", &a->gain_max_db));
    LHI_TRY(need_number(r, r->eqpt, type, "p_max", &a->power_max_dbm));
    if (is_fixed)
        return need_number(r, r->eqpt, type, "nf0", &a->nf1_db);
    if (advanced)
        return LH_OK;
    LHI_TRY(need_number(r, r->eqpt, type, "nf_min", &nf_min));
    LHI_TRY(need_number(r, r->eqpt, type, "nf_max", &nf_max));
    if (!(nf_min < nf_max && a->gain_min_db < a->gain_max_db))
        return lhi_doc_fail(r->eqpt, type, r->err, LH_EINPUT,
                            "needs nf_min below nf_max and gain_min below "
                            "gain_flatmax");
    fit_stages(nf_min, nf_max, a);
    if (!isfinite(a->nf1_db) || !isfinite(a->nf2_db) ||
        !isfinite(a->stage_loss_db))
        return lhi_doc_fail(r->eqpt, type, r->err, LH_EINPUT,
                            "no two stages have these noise figures");
    return LH_OK;
}

/* Updates a line's length and its channels' powers and signal shares by one
 * element between ROADMs: fibre, amplifier or loss. LH_EINPUT: another type. */
static lh_status pass_element(reader *r, const element *e, line *l,
                              lhi_gn_signal *signal)
{
    if (strcmp(e->type, "Fiber") == 0)
        return pass_fibre(r, e, l, signal);
    if (strcmp(e->type, "Edfa") == 0) {
        lhi_gn_amplifier a;
        LHI_TRY(read_amplifier(r, e, &a));
        lhi_gn_amplify(&r->out->gn->comb, &a, signal);
        return LH_OK;
    }
    if (strcmp(e->type, "Fused") == 0) {
        double loss = 1;
        LHI_TRY(get_number(r, r->net, lhi_node_find(e->map, "params"), "loss",
                           &loss));
        lhi_gn_attenuate(&r->out->gn->comb, loss, signal);
        return LH_OK;
    }
    return lhi_doc_fail(r->net, e->map, r->err, LH_EINPUT,
                        "an element of type '%.40s' is not modelled between "
                        "ROADMs; Fiber, Edfa and Fused are",
                        e->type);
}

/* Checks whether an optional map (NULL: absent) has a key that is not null. */
static bool has_value(const lhi_node *map, const char *key)
{
    const lhi_node *node = map ? lhi_node_find(map, key) : NULL;
    return node && !lhi_node_is_null(node);
}

/* Reads the power per channel, in dBm, that a ROADM (optical switch) sends
 * towards element `next`: by direction, by ROADM or from the equipment.
 * LH_EINPUT: it has none, or a power per bandwidth in its place. */
static lh_status read_power(const reader *r, const element *roadm,
                            const element *next, double *dbm)
{
    const lhi_node *type, *params = lhi_node_find(roadm->map, "params");
    const lhi_node *degrees =
        params ? lhi_node_find(params, "per_degree_pch_out_db") : NULL;
    static const char *const own[] = {"target_psd_out_mWperGHz",
                                      "target_out_mWperSlotWidth"};
    static const char *const by_degree[] = {
        "per_degree_psd_out_mWperGHz", "per_degree_psd_out_mWperSlotWidth"};
    *dbm = NAN;
    LHI_TRY(find_equipment(r, "Roadm", get_text(roadm->map, "type_variety"),
                           roadm->map, &type));
    LHI_TRY(get_number(r, r->eqpt, type, "target_pch_out_db", dbm));
    for (int i = 0; i < 2; i++)
        if (has_value(params, own[i]))
            *dbm = NAN; /* replaces the equipment's */
    LHI_TRY(get_number(r, r->net, params, "target_pch_out_db", dbm));
    LHI_TRY(get_number(r, r->net, degrees, next->uid, dbm));
    for (int i = 0; params && i < 2; i++)
        if (has_value(lhi_node_find(params, by_degree[i]), next->uid))
            *dbm = NAN;
    if (isnan(*dbm))
        return lhi_doc_fail(r->net, roadm->map, r->err, LH_EINPUT,
                            "has no target_pch_out_db towards '%.60s', and "
                            "other targets are not modelled",
                            next->uid);
    return LH_OK;
}

/* Returns the weakest channel's power, in dBm. */
static double get_least_dbm(const reader *r, const lhi_gn_signal *signal)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < r->out->gn->comb.n_channels; i++)
        least = fmin(least, signal->power_w[i]);
    return lhi_gn_to_db(1000 * least);
}

/* Fails with LH_EINPUT if a channel that arrives at a ROADM (optical switch)
 * from element `last` is weaker than the power at which the ROADM must send it
 * on, before the loss of its express path: a ROADM does not amplify. */
static lh_status check_power(const reader *r, const element *roadm,
                             const element *last, const lhi_gn_signal *signal)
{
    const lhi_node *type, *express;
    double dbm, loss = 0, least = get_least_dbm(r, signal);
    LHI_TRY(find_equipment(r, "Roadm", get_text(roadm->map, "type_variety"),
                           roadm->map, &type));
    LHI_TRY(lhi_gnpy_find_path_entry(r->eqpt, type, "roadm-express-path",
                                     &r->out->gn->comb, &express, r->err));
    LHI_TRY(get_number(r, r->eqpt, express, "roadm-maxloss", &loss));
    for (uint32_t i = 0; i < roadm->n_next; i++) {
        const element *next = &r->elements[r->targets[roadm->first + i]];
        if (strcmp(next->type, "Transceiver") == 0)
            continue;
        LHI_TRY(read_power(r, roadm, next, &dbm));
        if (least < dbm + loss - 0.01)
            return lhi_doc_fail(r->net, last->map, r->err, LH_EINPUT,
                                "sends %.2f dBm per channel to '%.60s', below "
                                "this ROADM's target of %.2f dBm plus its "
                                "express-path loss of %.2f dB",
                                least, roadm->uid, dbm, loss);
    }
    return LH_OK;
}

/* Fails with LH_EINPUT if a channel has no signal or no finite power after
 * element `e`: the model does not hold there. */
static lh_status check_signal(const reader *r, const element *e,
                              const lhi_gn_signal *signal)
{
    for (uint32_t i = 0; i < r->out->gn->comb.n_channels; i++)
        if (!(signal->share[i] > 0 && signal->power_w[i] < INFINITY))
            return lhi_doc_fail(r->net, e->map, r->err, LH_EINPUT,
                                "a channel has only noise after this element, "
                                "because a power, gain or loss is out of "
                                "range");
    return LH_OK;
}

/* Reads one line: follows the elements (fibres, amplifiers, losses) from the
 * ROADM (optical switch) `from` and its neighbour `next` to the next ROADM, and
 * appends the line to r->lines. `signal` is scratch: the channels' powers and
 * shares along the line. LH_EINPUT: the line branches or does not end at
 * another ROADM. */
static lh_status follow_line(reader *r, const element *from,
                             const element *next, lhi_gn_signal *signal)
{
    line *l = &r->lines[r->n_lines];
    uint32_t n = r->out->gn->comb.n_channels, passed = 0;
    double dbm;
    const element *last = from;
    *l = (line){.from = from->node, .shares = LHI_NEW(r->mem, double, n)};
    if (!l->shares)
        return lhi_fail_nomem(r->err);
    LHI_TRY(read_power(r, from, next, &dbm));
    for (uint32_t i = 0; i < n; i++) {
        signal->power_w[i] = lhi_gn_from_db(dbm) / 1000;
        signal->share[i] = 1;
    }
    while (next->node == LH_NONE) {
        LHI_TRY(pass_element(r, next, l, signal));
        LHI_TRY(check_signal(r, next, signal));
        if (next->n_next != 1 || ++passed > r->n_elements)
            return lhi_doc_fail(r->net, next->map, r->err, LH_EINPUT,
                                "'%.60s' leads to %" PRIu32 " elements; a line "
                                "has one way to a ROADM",
                                next->uid, next->n_next);
        last = next;
        next = &r->elements[r->targets[next->first]];
    }
    LHI_TRY(check_power(r, next, last, signal));
    l->to = next->node;
    if (l->to == l->from || l->length_m < 1)
        return lhi_doc_fail(r->net, last->map, r->err, LH_EINPUT,
                            "the line to '%.60s' needs a fibre and another "
                            "ROADM at its begin",
                            next->uid);
    memcpy(l->shares, signal->share, n * sizeof *l->shares);
    r->n_lines++;
    return LH_OK;
}

/* Reads the lines of all ROADMs (optical switches) into r->lines, by node
 * number. */
static lh_status read_lines(reader *r)
{
    const element **roadms = LHI_NEW(r->mem, const element *, r->out->n_nodes);
    lhi_gn_signal *signal = LHI_NEW(r->mem, lhi_gn_signal, 1);
    size_t n = 0;
    if (!roadms || !signal)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < r->n_elements; i++)
        if (r->elements[i].node != LH_NONE) {
            roadms[r->elements[i].node] = &r->elements[i];
            n += r->elements[i].n_next;
        }
    r->lines = LHI_NEW(r->mem, line, n + 1);
    if (!r->lines)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < r->out->n_nodes; i++)
        for (uint32_t k = 0; k < roadms[i]->n_next; k++) {
            const element *next =
                &r->elements[r->targets[roadms[i]->first + k]];
            if (strcmp(next->type, "Transceiver") != 0)
                LHI_TRY(follow_line(r, roadms[i], next, signal));
        }
    return LH_OK;
}

/* Pairs opposite lines to cables: the n-th line from a to b and the n-th back.
 */
static lh_status pair_lines(reader *r)
{
    lhi_gnpy_network *o = r->out;
    uint32_t n = o->gn->comb.n_channels;
    o->cables = LHI_NEW(r->mem, lh_cable, r->n_lines + 1);
    double *shares = LHI_NEW(r->mem, double, (size_t)r->n_lines *n + 1);
    if (!o->cables || !shares)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < r->n_lines; i++) {
        line *l = &r->lines[i], *back = NULL;
        if (l->paired)
            continue;
        for (uint32_t k = i + 1; k < r->n_lines && !back; k++)
            if (!r->lines[k].paired && r->lines[k].from == l->to &&
                r->lines[k].to == l->from)
                back = &r->lines[k];
        if (!back)
            return lhi_fail(r->err, LH_EINPUT,
                            "%.160s: no line leads back from '%.60s' to "
                            "'%.60s'; add one to the network before GNPy's "
                            "design (--save-network)",
                            r->net->file, o->names[l->to], o->names[l->from]);
        l->paired = back->paired = true;
        o->cables[o->n_cables] = (lh_cable){
            .a = l->from,
            .b = l->to,
            .length_m =
                l->length_m > back->length_m ? l->length_m : back->length_m};
        memcpy(shares + 2 * (size_t)o->n_cables * n, l->shares,
               n * sizeof *shares);
        memcpy(shares + (2 * (size_t)o->n_cables + 1) * n, back->shares,
               n * sizeof *shares);
        o->n_cables++;
    }
    o->gn->shares = shares;
    if (o->n_cables < 1 || o->n_cables > LHI_MAX_CABLES)
        return lhi_fail(r->err, LH_EINPUT,
                        "%.80s: %" PRIu32 " pairs of lines between ROADMs; a "
                        "topology has 1 to %d",
                        r->net->file, o->n_cables, LHI_MAX_CABLES);
    return LH_OK;
}

/* --- equipment ------------------------------------------------------------ */

/* Reads the channel spectrum (frequencies, spacing, symbol rate, transmitter
 * OSNR) from the first entry of SI in the equipment file. */
static lh_status read_comb(reader *r)
{
    const lhi_node *list;
    double first = 0, last = 0;
    lhi_gn *gn = r->out->gn;
    LHI_TRY(lhi_node_require(r->eqpt, r->eqpt->root, "SI", &list, r->err));
    LHI_TRY(lhi_node_check_list(r->eqpt, list, r->err));
    if (!list->first)
        return lhi_doc_fail(r->eqpt, list, r->err, LH_EINPUT,
                            "needs an entry with the channels");
    LHI_TRY(need_number(r, r->eqpt, list->first, "f_min", &first));
    LHI_TRY(need_number(r, r->eqpt, list->first, "f_max", &last));
    LHI_TRY(
        need_number(r, r->eqpt, list->first, "spacing", &gn->comb.spacing_hz));
    LHI_TRY(need_number(r, r->eqpt, list->first, "baud_rate", &gn->comb.baud));
    LHI_TRY(need_number(r, r->eqpt, list->first, "tx_osnr", &gn->tx_osnr_db));
    double n = floor((last - first) / gn->comb.spacing_hz) + 1;
    if (!(first > 1e12 && n >= 1 && n <= LHI_GN_MAX_CHANNELS &&
          gn->comb.baud > 1e6 && gn->comb.baud <= gn->comb.spacing_hz))
        return lhi_doc_fail(r->eqpt, list->first, r->err, LH_EINPUT,
                            "f_min, f_max, spacing and baud_rate must give 1 "
                            "to %d channels",
                            LHI_GN_MAX_CHANNELS);
    gn->comb.first_hz = first;
    gn->comb.n_channels = (uint32_t)n;
    return LH_OK;
}

/* Reads the OSNR (dB) with which a ROADM adds (kind "roadm-add-path") or drops
 * channels into *osnr: that of the path's profile, else half the noise of
 * add_drop_osnr. Unchanged if the equipment has neither. */
static lh_status read_path_osnr(const reader *r, const lhi_node *type,
                                const char *kind, double *osnr)
{
    const lhi_node *entry;
    double both = INFINITY;
    LHI_TRY(lhi_gnpy_find_path_entry(r->eqpt, type, kind, &r->out->gn->comb,
                                     &entry, r->err));
    if (entry)
        return get_number(r, r->eqpt, entry, "roadm-osnr", osnr);
    LHI_TRY(get_number(r, r->eqpt, type, "add_drop_osnr", &both));
    *osnr = both + lhi_gn_to_db(2);
    return LH_OK;
}

/* Reads each ROADM's OSNR of adding and of dropping channels (dB) from the
 * equipment file; infinite if it has none. LH_EINPUT: express paths have an
 * OSNR, too. */
static lh_status read_add_drop(reader *r)
{
    double *add = LHI_NEW(r->mem, double, r->out->n_nodes);
    double *drop = LHI_NEW(r->mem, double, r->out->n_nodes);
    if (!add || !drop)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < r->n_elements; i++) {
        const element *e = &r->elements[i];
        const lhi_node *type, *express;
        if (e->node == LH_NONE)
            continue;
        add[e->node] = drop[e->node] = INFINITY;
        LHI_TRY(find_equipment(r, "Roadm", get_text(e->map, "type_variety"),
                               e->map, &type));
        LHI_TRY(lhi_gnpy_check_profiles(r->net, e->map, type, r->err));
        LHI_TRY(read_path_osnr(r, type, "roadm-add-path", &add[e->node]));
        LHI_TRY(read_path_osnr(r, type, "roadm-drop-path", &drop[e->node]));
        LHI_TRY(lhi_gnpy_find_path_entry(r->eqpt, type, "roadm-express-path",
                                         &r->out->gn->comb, &express, r->err));
        const lhi_node *osnr =
            express ? lhi_node_find(express, "roadm-osnr") : NULL;
        if (osnr && !lhi_node_is_null(osnr))
            return lhi_doc_fail(r->eqpt, osnr, r->err, LH_EINPUT,
                                "noise of express paths in a ROADM is not "
                                "modelled; remove it");
    }
    r->out->gn->add_osnr_db = add;
    r->out->gn->drop_osnr_db = drop;
    return LH_OK;
}

/* Reads one mode of a transceiver (format, required OSNR, rate per 12.5 GHz
 * slot) from the equipment file. */
static lh_status read_mode(reader *r, const lhi_node *map, lhi_gn_mode *out)
{
    double rate = 0, spacing = 0;
    LHI_TRY(lhi_node_check_map(r->eqpt, map, r->err));
    out->format = lhi_arena_strdup(r->mem, get_text(map, "format"));
    if (!out->format)
        return lhi_fail_nomem(r->err);
    out->tx_osnr_db = r->out->gn->tx_osnr_db;
    LHI_TRY(need_number(r, r->eqpt, map, "OSNR", &out->osnr_db));
    LHI_TRY(get_number(r, r->eqpt, map, "tx_osnr", &out->tx_osnr_db));
    LHI_TRY(need_number(r, r->eqpt, map, "bit_rate", &rate));
    LHI_TRY(need_number(r, r->eqpt, map, "min_spacing", &spacing));
    if (!(rate >= 1e6 && rate <= 1e15 && spacing > 0 && spacing < 1e13))
        return lhi_doc_fail(r->eqpt, map, r->err, LH_EINPUT,
                            "bit_rate or min_spacing is out of range");
    out->mbps = (int64_t)(rate / 1e6 / ceil(spacing / SLOT_HZ) + 0.5);
    return LH_OK;
}

/* Reads all transceivers of the equipment file with their modes; there may be
 * none. */
static lh_status read_transceivers(reader *r)
{
    const lhi_node *list = lhi_node_find(r->eqpt->root, "Transceiver"), *modes;
    if (!list)
        return LH_OK;
    LHI_TRY(lhi_node_check_list(r->eqpt, list, r->err));
    lhi_gn_transceiver *all =
        LHI_NEW(r->mem, lhi_gn_transceiver, list->n_items + 1);
    if (!all)
        return lhi_fail_nomem(r->err);
    r->out->gn->transceivers = all;
    for (const lhi_node *n = list->first; n; n = n->next, all++) {
        LHI_TRY(lhi_node_require(r->eqpt, n, "mode", &modes, r->err));
        LHI_TRY(lhi_node_check_list(r->eqpt, modes, r->err));
        lhi_gn_mode *m = LHI_NEW(r->mem, lhi_gn_mode, modes->n_items + 1);
        all->name = lhi_arena_strdup(r->mem, get_text(n, "type_variety"));
        if (!m || !all->name)
            return lhi_fail_nomem(r->err);
        all->modes = m;
        for (const lhi_node *k = modes->first; k; k = k->next)
            LHI_TRY(read_mode(r, k, &m[all->n_modes++]));
        r->out->gn->n_transceivers++;
    }
    return LH_OK;
}

/* Reads channels, elements, lines and transceivers from the two parsed
 * documents, and computes all lines' noise. */
static lh_status read_documents(reader *r)
{
    r->out->gn = LHI_NEW(r->mem, lhi_gn, 1);
    if (!r->out->gn)
        return lhi_fail_nomem(r->err);
    LHI_TRY(read_comb(r));
    LHI_TRY(read_elements(r));
    LHI_TRY(read_connections(r));
    LHI_TRY(read_add_drop(r));
    LHI_TRY(read_transceivers(r));
    LHI_TRY(read_lines(r));
    return pair_lines(r);
}

lh_status lhi_gnpy_read(const char *files[LHI_MAX_FILES], lhi_arena *mem,
                        lhi_gnpy_network *out, lh_error *err)
{
    lhi_doc *net, *eqpt;
    LHI_TRY(lhi_doc_load(files[0], LHI_INPUT_TOPOLOGY, &net, err));
    lh_status status = lhi_doc_load(files[1], LHI_INPUT_TOPOLOGY, &eqpt, err);
    if (status == LH_OK) {
        *out = (lhi_gnpy_network){0};
        reader r = {.net = net,
                    .eqpt = eqpt,
                    .mem = mem,
                    .out = out,
                    .files = files,
                    .err = err};
        status = read_documents(&r);
        lhi_doc_free(eqpt);
    }
    lhi_doc_free(net);
    return status;
}
