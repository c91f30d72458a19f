/* SPDX-License-Identifier: Apache-2.0 */
/* What the ends of a link between datacenters are set to: keys of
 * `cluster.links[]`. */
#include "spec/spec.h"

/* By value of the enums, less "not given". */
static const char *const balancings[] = {"ecmp", "spray", NULL};
static const char *const recoveries[] = {"go-back-n", "selective-repeat", NULL};
static const char *const congestions[] = {"off", "on", NULL};

enum { MOST_QUEUE_PAIRS = 65536, MOST_BLOCK = 65536 };

static lh_status get_choice(const lhi_doc *doc, const lhi_node *map,
                            const char *key, const char *const *names,
                            uint32_t *out, lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_choice(doc, node, names, out, err));
    *out += 1;
    return LH_OK;
}

static lh_status get_count(const lhi_doc *doc, const lhi_node *map,
                           const char *key, uint32_t most, uint32_t *out,
                           lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    return node ? lhi_get_u32(doc, node, 1, most, out, err) : LH_OK;
}

static lh_status get_kib(const lhi_doc *doc, const lhi_node *map,
                         const char *key, double *out_bytes, lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    double kib;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_number15(doc, node, 1, 1e12, &kib, err));
    *out_bytes = kib * 1024;
    return LH_OK;
}

static lh_status get_code(const lhi_doc *doc, const lhi_node *map,
                          lh_link_setting *out, lh_error *err)
{
    static const char *const keys[] = {"data", "parity", NULL};
    const lhi_node *fec = lhi_find(map, "fec"), *node;
    if (!fec)
        return LH_OK;
    LHI_TRY(lhi_known_keys(doc, fec, keys, err));
    LHI_TRY(lhi_need(doc, fec, "data", &node, err));
    LHI_TRY(lhi_get_u32(doc, node, 1, MOST_BLOCK, &out->fec_data, err));
    LHI_TRY(lhi_need(doc, fec, "parity", &node, err));
    return lhi_get_u32(doc, node, 1, MOST_BLOCK, &out->fec_parity, err);
}

/* A key that has no meaning without another. */
static lh_status check_company(const lhi_doc *doc, const lhi_node *map,
                               const lh_link_setting *s, lh_error *err)
{
    const lhi_node *node = lhi_find(map, "paths");
    if (node && s->balancing != LH_BALANCING_ECMP)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "matters with load_balancing: ecmp only");
    node = lhi_find(map, "queue_kib");
    if (node && s->congestion != LH_CONGESTION_ON)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "matters with congestion_control: on only");
    return LH_OK;
}

lh_status lhi_link_setting_from_map(const lhi_doc *doc, const lhi_node *map,
                                    lh_link_setting *out, lh_error *err)
{
    uint32_t balancing = 0, congestion = 0, recovery = 0;
    lh_link_setting s = {0};
    LHI_TRY(
        get_choice(doc, map, "load_balancing", balancings, &balancing, err));
    LHI_TRY(get_choice(doc, map, "congestion_control", congestions, &congestion,
                       err));
    LHI_TRY(get_choice(doc, map, "recovery", recoveries, &recovery, err));
    s.balancing = (lh_balancing)balancing;
    s.congestion = (lh_congestion)congestion;
    s.recovery = (lh_recovery)recovery;
    LHI_TRY(get_count(doc, map, "queue_pairs", MOST_QUEUE_PAIRS, &s.queue_pairs,
                      err));
    LHI_TRY(get_count(doc, map, "paths", MOST_QUEUE_PAIRS, &s.paths, err));
    LHI_TRY(get_kib(doc, map, "window_kib", &s.window_bytes, err));
    LHI_TRY(get_kib(doc, map, "queue_kib", &s.queue_bytes, err));
    LHI_TRY(get_code(doc, map, &s, err));
    LHI_TRY(check_company(doc, map, &s, err));
    *out = s;
    return LH_OK;
}

static bool set_choice(json_t *map, const char *key, const char *const *names,
                       uint32_t value)
{
    return !value || lhi_json_set(map, key, json_string(names[value - 1]));
}

static bool set_count(json_t *map, const char *key, uint32_t count)
{
    return !count || lhi_json_set(map, key, json_integer(count));
}

static bool set_kib(json_t *map, const char *key, double bytes)
{
    return !(bytes > 0) ||
           lhi_json_set(map, key, lhi_json_number(lhi_round15(bytes / 1024)));
}

bool lhi_link_setting_to_map(const lh_link_setting *s, json_t *map)
{
    bool ok =
        set_choice(map, "load_balancing", balancings, s->balancing) &&
        set_count(map, "queue_pairs", s->queue_pairs) &&
        set_count(map, "paths", s->paths) &&
        set_kib(map, "window_kib", s->window_bytes) &&
        set_choice(map, "congestion_control", congestions, s->congestion) &&
        set_kib(map, "queue_kib", s->queue_bytes) &&
        set_choice(map, "recovery", recoveries, s->recovery);
    if (!ok || !s->fec_data)
        return ok;
    json_t *fec = json_object();
    ok = fec && set_count(fec, "data", s->fec_data) &&
         set_count(fec, "parity", s->fec_parity);
    if (ok)
        return lhi_json_set(map, "fec", fec);
    json_decref(fec);
    return false;
}
