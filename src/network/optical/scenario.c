/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a scenario's file, except for its jobs. */
#include "network/optical/gnpy.h"
#include "network/optical/load_gsnr.h"
#include "network/optical/scenario_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_JOBS = 256,
    MAX_POLICIES = 1000,
    MAX_SEEDS = 100000,
    MAX_ITERATIONS = 100000,
    MAX_CUTS = 1000,
};

/* Reads `topology`: a map, or a topology file's path. */
static lh_status read_topology(lhi_keys_reader *r, const lhi_node *node)
{
    if (node->kind == LHI_MAP)
        return lhi_topology_parse_node(r->doc, node, &r->s->topology, r->err);
    const char *path;
    LHI_TRY(lhi_scenario_resolve_file(r->s, r->doc, node, &path, r->err));
    lh_status status = lh_topology_read(path, &r->s->topology, r->err);
    if (status != LH_OK) {
        lhi_fail_add_context(r->err, "%s:%" PRIu32, r->doc->file, node->line);
        return status;
    }
    for (int i = 0; status == LH_OK && i < LHI_MAX_FILES; i++)
        if (r->s->topology->files[i])
            status =
                lhi_scenario_add_file(r->s, r->s->topology->files[i], r->err);
    return status;
}

/* Reads a rate in Gb/s with up to three decimals, into *mbps. */
static lh_status get_rate(lhi_keys_reader *r, const lhi_node *node,
                          int64_t *mbps)
{
    double gbps;
    LHI_TRY(lhi_node_get_number(r->doc, node, 0.001, 1e6, &gbps, r->err));
    *mbps = (int64_t)(gbps * 1000 + 0.5);
    return LH_OK;
}

/* Reads one modulation: its rate per spectrum slot and its reach (maximum path
 * length). The `last` one must have no reach: it serves any length. */
static lh_status read_reach(lhi_keys_reader *r, const lhi_node *map, bool last,
                            lhi_reach *out)
{
    static const char *const keys[] = {"up_to_km", "gbps", NULL};
    const lhi_node *node;
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "gbps", &node, r->err));
    LHI_TRY(get_rate(r, node, &out->mbps));
    out->length_m = INT64_MAX;
    node = lhi_node_find(map, "up_to_km");
    if (last && node)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "the last modulation must serve any length, so it "
                            "has no up_to_km");
    if (last)
        return LH_OK;
    LHI_TRY(lhi_node_require(r->doc, map, "up_to_km", &node, r->err));
    return lhi_topology_get_length(r->doc, node, &out->length_m, r->err);
}

/* Reads `modulation`: the word "adaptive" or "load_gsnr", or a list in
 * ascending order of reach. Sets *by_load if rates depend on the GSNR under the
 * current load; the reaches then have no effect, and their lowest rate is the
 * lowest one of the formats under load. */
static lh_status read_modulation(lhi_keys_reader *r, const lhi_node *node,
                                 const lhi_reach **reaches, uint32_t *n,
                                 bool *by_load)
{
    static const char *const names[] = {"adaptive", "load_gsnr", NULL};
    uint32_t which;
    if (node->kind != LHI_LIST) {
        LHI_TRY(lhi_node_get_choice(r->doc, node, names, &which, r->err));
        *reaches = lhi_adaptive_reaches;
        *n = LHI_N_ADAPTIVE;
        *by_load = which == 1;
        if (*by_load && r->s->topology->gn)
            return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                                "assumes lines of standard fibre, but the "
                                "topology has the lines of a GNPy network; "
                                "give {transceiver: NAME} instead");
        return LH_OK;
    }
    if (node->n_items < 1 || node->n_items > 64)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "give 1 to 64 modulations");
    lhi_reach *list = LHI_NEW(r->s->mem, lhi_reach, node->n_items);
    if (!list)
        return lhi_fail_nomem(r->err);
    uint32_t i = 0;
    for (const lhi_node *item = node->first; item; item = item->next, i++) {
        LHI_TRY(read_reach(r, item, !item->next, &list[i]));
        if (i > 0 && list[i].length_m <= list[i - 1].length_m)
            return lhi_doc_fail(
                r->doc, item, r->err, LH_EINPUT,
                "modulations must be in ascending order of up_to_km");
    }
    *reaches = list;
    *n = i;
    return LH_OK;
}

/* Reads `modulation` as a map: a transceiver of the topology's equipment, whose
 * modes are chosen by each path's GSNR, into *out, and the margin on the GSNR
 * into *margin_db. */
static lh_status read_transceiver(lhi_keys_reader *r, const lhi_node *map,
                                  const lhi_gn_transceiver **out,
                                  double *margin_db)
{
    static const char *const keys[] = {"transceiver", "margin_db", NULL};
    const lhi_gn *gn = r->s->topology->gn;
    const lhi_node *node;
    const char *name;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "transceiver", &node, r->err));
    LHI_TRY(lhi_node_get_string(r->doc, node, &name, r->err));
    if (!gn)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "needs a topology with gnpy, which has the GSNR of "
                            "paths");
    for (uint32_t i = 0; i < gn->n_transceivers; i++)
        if (strcmp(gn->transceivers[i].name, name) == 0)
            *out = &gn->transceivers[i];
    if (!*out || (*out)->n_modes == 0)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "the topology's equipment has no transceiver "
                            "'%.60s' with modes",
                            name);
    *margin_db = 0;
    if ((node = lhi_node_find(map, "margin_db")) != NULL)
        return lhi_node_get_number(r->doc, node, -100, 100, margin_db, r->err);
    return LH_OK;
}

/* Reads topology, slots, rates and candidate paths, and builds the network. */
static lh_status read_network(lhi_keys_reader *r, const lhi_node *map)
{
    const lhi_node *node, *rate = lhi_node_find(map, "gbps_per_slot");
    const lhi_node *modulation = lhi_node_find(map, "modulation");
    lhi_reach plain = {INT64_MAX, 75000};
    const lhi_reach *reaches = &plain;
    uint32_t n_reaches = 1, slots = 80, k = 5;
    bool shared = false, by_load = false;
    LHI_TRY(lhi_node_require(r->doc, map, "topology", &node, r->err));
    LHI_TRY(read_topology(r, node));
    LHI_TRY(lhi_keys_get_count(r, map, "slots", 1, LHI_MAX_SLOTS, &slots));
    LHI_TRY(lhi_keys_get_count(r, map, "candidate_paths", 1, LHI_MAX_CANDIDATES,
                               &k));
    if ((node = lhi_node_find(map, "shared_fibre")) != NULL)
        LHI_TRY(lhi_node_get_bool(r->doc, node, &shared, r->err));
    if (rate && modulation)
        return lhi_doc_fail(
            r->doc, modulation, r->err, LH_EINPUT,
            "cannot be combined with gbps_per_slot, because it determines the "
            "rate of a slot; remove one of them");
    if (rate)
        LHI_TRY(get_rate(r, rate, &plain.mbps));
    const lhi_gn_transceiver *transceiver = NULL;
    double margin_db = 0;
    if (modulation && modulation->kind == LHI_MAP)
        LHI_TRY(read_transceiver(r, modulation, &transceiver, &margin_db));
    else if (modulation)
        LHI_TRY(read_modulation(r, modulation, &reaches, &n_reaches, &by_load));
    r->s->slowest_mbps = INT64_MAX;
    for (uint32_t i = 0; transceiver && i < transceiver->n_modes; i++)
        if (transceiver->modes[i].mbps < r->s->slowest_mbps)
            r->s->slowest_mbps = transceiver->modes[i].mbps;
    for (uint32_t i = 0; !transceiver && i < n_reaches; i++)
        if (reaches[i].mbps < r->s->slowest_mbps)
            r->s->slowest_mbps = reaches[i].mbps;
    LHI_TRY(lhi_network_make(r->s->topology, k, slots, shared, reaches,
                             n_reaches, &r->s->network, r->err));
    LHI_TRY(lhi_keys_get_count(r, map, "guard_slots", 0, slots - 1,
                               &r->s->network->guard_slots));
    r->s->network->transceiver = transceiver;
    r->s->network->margin_db = margin_db;
    return by_load ? lhi_network_rate_by_load(r->s->network, r->err) : LH_OK;
}

/* Reads the smallest and largest rate (Gb/s) of background requests into *b;
 * nothing if they are given as numbers of slots. */
static lh_status read_background_rates(lhi_keys_reader *r, const lhi_node *map,
                                       lhi_background *b)
{
    const lhi_node *least = lhi_node_find(map, "gbps_min");
    const lhi_node *most = lhi_node_find(map, "gbps_max");
    if (!least && !most)
        return LH_OK;
    if (lhi_node_find(map, "slots_min") || lhi_node_find(map, "slots_max"))
        return lhi_doc_fail(r->doc, least ? least : most, r->err, LH_EINPUT,
                            "cannot be combined with slots_min and slots_max, "
                            "because the rate determines the slots");
    LHI_TRY(lhi_node_require(r->doc, map, "gbps_min", &least, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "gbps_max", &most, r->err));
    LHI_TRY(lhi_node_get_u32(r->doc, least, 1, LHI_MAX_BACKGROUND_GBPS,
                             &b->gbps_min, r->err));
    return lhi_node_get_u32(r->doc, most, b->gbps_min, LHI_MAX_BACKGROUND_GBPS,
                            &b->gbps_max, r->err);
}

/* Reads the background traffic's load and request sizes; NULL: no traffic. */
static lh_status read_background(lhi_keys_reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"erlang",    "holding_s", "slots_min",
                                       "slots_max", "gbps_min",  "gbps_max",
                                       NULL};
    lhi_background *b = &r->s->background;
    uint32_t slots = r->s->network->slots - r->s->network->guard_slots;
    double holding_s = 1;
    const lhi_node *node;
    *b = (lhi_background){.erlang = 0, .slots_min = 1};
    b->slots_max = slots < 8 ? slots : 8;
    if (map) {
        LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
        LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
        LHI_TRY(lhi_node_require(r->doc, map, "erlang", &node, r->err));
        LHI_TRY(lhi_node_get_number(r->doc, node, 0, 1e6, &b->erlang, r->err));
        if ((node = lhi_node_find(map, "holding_s")) != NULL)
            LHI_TRY(lhi_node_get_number(r->doc, node, 1e-6, 1e6, &holding_s,
                                        r->err));
        if ((node = lhi_node_find(map, "slots_min")) != NULL) {
            LHI_TRY(lhi_node_get_u32(r->doc, node, 1, slots, &b->slots_min,
                                     r->err));
            if (b->slots_max < b->slots_min)
                b->slots_max = b->slots_min;
        }
        if ((node = lhi_node_find(map, "slots_max")) != NULL)
            LHI_TRY(lhi_node_get_u32(r->doc, node, b->slots_min, slots,
                                     &b->slots_max, r->err));
        LHI_TRY(read_background_rates(r, map, b));
    }
    b->holding_ns = holding_s * 1e9;
    if (!lhi_background_is_sparse(b))
        return lhi_doc_fail(
            r->doc, map, r->err, LH_EINPUT,
            "the mean interval between requests is %.3g ns; it must be at "
            "least %d ns: lower erlang or raise holding_s",
            b->holding_ns / b->erlang, LHI_MIN_REQUEST_GAP_NS);
    return LH_OK;
}

/* Reads an optional time in seconds, from `least` to 1e6; *out_ns is unchanged
 * if the key is absent. */
static lh_status get_seconds(lhi_keys_reader *r, const lhi_node *map,
                             const char *key, double least, double *out_ns)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_node_get_number(r->doc, node, least, 1e6, out_ns, r->err));
    *out_ns *= 1e9;
    return LH_OK;
}

/* Returns the number of cables between nodes a and b; *cable: the one at
 * position `index` among them, in the file's order. */
static uint32_t count_links(const lh_topology *t, uint32_t a, uint32_t b,
                            uint32_t index, uint32_t *cable)
{
    uint32_t n = 0;
    for (uint32_t w = t->first_way[a]; w < t->first_way[a + 1]; w++)
        if (t->ways[w].node == b && n++ == index)
            *cable = t->ways[w].cable;
    return n;
}

/* Reads `link`, a list of two different nodes, and returns their indices in
 * `ends`. */
static lh_status read_pair(lhi_keys_reader *r, const lhi_node *list,
                           uint32_t ends[2])
{
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items != 2)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "give the two nodes of the link");
    uint32_t i = 0;
    for (const lhi_node *n = list->first; n; n = n->next, i++) {
        int64_t id;
        LHI_TRY(lhi_node_get_int(r->doc, n, 0, INT32_MAX, &id, r->err));
        ends[i] = lhi_topology_find(r->s->topology, id);
        if (ends[i] == LH_NONE)
            return lhi_doc_fail(r->doc, n, r->err, LH_EINPUT,
                                "the topology has no node %" PRId64, id);
    }
    return LH_OK;
}

/* A growing list of cuts. */
typedef struct cut_list {
    lhi_link_cut *items;
    uint32_t count, capacity;
} cut_list;

/* Appends a planned cable cut to a list that grows; LH_ENOMEM. */
static lh_status add_cut(lhi_keys_reader *r, cut_list *list, lhi_link_cut cut)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        lhi_link_cut *items = LHI_NEW(r->s->mem, lhi_link_cut, capacity);
        if (!items)
            return lhi_fail_nomem(r->err);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = cut;
    return LH_OK;
}

/* Reads one planned cut (link, time, repair) and appends it to *out; without
 * `index`, one for every cable between the two nodes. `wait`: messages wait for
 * the repair, which must then be given. */
static lh_status read_cut(lhi_keys_reader *r, const lhi_node *map, bool wait,
                          cut_list *out)
{
    static const char *const keys[] = {"link", "index", "at_s", "repair_s",
                                       NULL};
    const lhi_node *node;
    uint32_t ends[2], first = 0, cable = 0;
    double at = 0, repair = -1;
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "link", &node, r->err));
    LHI_TRY(read_pair(r, node, ends));
    uint32_t n_links = count_links(r->s->topology, ends[0], ends[1], 0, &cable);
    if (n_links == 0)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "the topology has no such link");
    LHI_TRY(lhi_node_require(r->doc, map, "at_s", &node, r->err));
    LHI_TRY(get_seconds(r, map, "at_s", 0, &at));
    LHI_TRY(get_seconds(r, map, "repair_s", 1e-9, &repair));
    node = lhi_node_find(map, "repair_s");
    if (node && repair <= at)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "must be later than at_s");
    if (!node && wait)
        return lhi_doc_fail(r->doc, map, r->err, LH_EINPUT,
                            "needs repair_s, because messages wait for the "
                            "repair");
    uint32_t end = n_links;
    if ((node = lhi_node_find(map, "index")) != NULL) {
        LHI_TRY(lhi_node_get_u32(r->doc, node, 0, n_links - 1, &first, r->err));
        end = first + 1;
    }
    for (uint32_t i = first; i < end; i++) {
        count_links(r->s->topology, ends[0], ends[1], i, &cable);
        lhi_link_cut cut = {.cable = cable,
                            .at_ns = (int64_t)at,
                            .repair_ns =
                                repair < 0 ? INT64_MAX : (int64_t)repair};
        LHI_TRY(add_cut(r, out, cut));
    }
    return LH_OK;
}

/* Reads `failures`: given and random cuts; NULL: none. */
static lh_status read_failures(lhi_keys_reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"cuts",    "mtbf_s",      "mttr_s",
                                       "restore", "detection_s", NULL};
    static const char *const ways[] = {"reroute", "wait", NULL};
    double detection = 50e6;
    const lhi_node *list;
    if (!map)
        return LH_OK;
    lhi_failures *f = LHI_NEW(r->s->mem, lhi_failures, 1);
    if (!f)
        return lhi_fail_nomem(r->err);
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(lhi_keys_get_choice(r, map, "restore", ways, &f->wait));
    LHI_TRY(get_seconds(r, map, "detection_s", 0, &detection));
    LHI_TRY(get_seconds(r, map, "mtbf_s", 1e-3, &f->mtbf_ns));
    LHI_TRY(get_seconds(r, map, "mttr_s", 1e-3, &f->mttr_ns));
    if ((f->mtbf_ns > 0) != (f->mttr_ns > 0))
        return lhi_doc_fail(r->doc, map, r->err, LH_EINPUT,
                            "give both mtbf_s and mttr_s, or neither");
    f->detection_ns = (int64_t)detection;
    if ((list = lhi_node_find(map, "cuts")) != NULL) {
        LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
        if (list->n_items > MAX_CUTS)
            return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                                "%" PRIu32 " cuts; at most %d are possible",
                                list->n_items, MAX_CUTS);
        cut_list cuts = {0};
        for (const lhi_node *n = list->first; n; n = n->next)
            LHI_TRY(read_cut(r, n, f->wait, &cuts));
        f->cuts = cuts.items;
        f->n_cuts = cuts.count;
    }
    r->s->failures = f;
    return LH_OK;
}

/* Reads the scenario's jobs from `job`, `jobs` or `plan`, of which exactly one
 * is required. */
static lh_status read_jobs(lhi_keys_reader *r, const lhi_node *map)
{
    const lhi_node *one = lhi_node_find(map, "job"),
                   *list = lhi_node_find(map, "jobs");
    const lhi_node *plan = lhi_node_find(map, "plan");
    lh_scenario *s = r->s;
    if (!!one + !!list + !!plan > 1)
        return lhi_doc_fail(r->doc, list ? list : plan, r->err, LH_EINPUT,
                            "give one of job, jobs and plan");
    if (!one && !list && !plan)
        return lhi_node_require(r->doc, map, "job", &one, r->err);
    s->n_jobs = 1;
    if (list) {
        LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
        s->n_jobs = list->n_items;
        if (s->n_jobs < 1 || s->n_jobs > MAX_JOBS)
            return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                                "%" PRIu32 " jobs; 1 to %d can share a "
                                "network",
                                s->n_jobs, MAX_JOBS);
        one = list->first;
    }
    s->jobs = LHI_NEW(s->mem, lhi_optical_job_spec, s->n_jobs);
    if (!s->jobs)
        return lhi_fail_nomem(r->err);
    if (plan)
        return lhi_optical_job_parse_plan(r->doc, plan, s, &s->jobs[0], r->err);
    for (uint32_t i = 0; i < s->n_jobs; i++, one = one->next)
        LHI_TRY(lhi_optical_job_parse(r->doc, one, s, &s->jobs[i], r->err));
    for (uint32_t i = 1; s->network->lines && i < s->n_jobs; i++)
        if (s->jobs[i].priority != s->jobs[0].priority)
            return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                                "the jobs have different priorities, which is "
                                "not possible with modulation: load_gsnr; give "
                                "all jobs the same priority");
    return LH_OK;
}

/* Reads `policies`: a map from each policy's name to its options. */
static lh_status read_policies(lhi_keys_reader *r, const lhi_node *map)
{
    lh_scenario *s = r->s;
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    if (map->n_items < 1 || map->n_items > MAX_POLICIES)
        return lhi_doc_fail(r->doc, map, r->err, LH_EINPUT,
                            "%" PRIu32 " policies; give 1 to %d", map->n_items,
                            MAX_POLICIES);
    s->policies = LHI_NEW(s->mem, lhi_policy, map->n_items);
    if (!s->policies)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *node = map->first; node; node = node->next)
        LHI_TRY(lhi_policy_parse(r->doc, node, r->s,
                                 &s->policies[s->n_policies++], r->err));
    return LH_OK;
}

/* Reads the random seed list; NULL: 1 to 5. */
static lh_status read_seeds(lhi_keys_reader *r, const lhi_node *list)
{
    lh_scenario *s = r->s;
    if (!list) {
        static const uint64_t usual[] = {1, 2, 3, 4, 5};
        s->n_seeds = sizeof usual / sizeof *usual;
        s->seeds = LHI_NEW(s->mem, uint64_t, s->n_seeds);
        if (!s->seeds)
            return lhi_fail_nomem(r->err);
        memcpy(s->seeds, usual, sizeof usual);
        return LH_OK;
    }
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items < 1 || list->n_items > MAX_SEEDS)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "give 1 to %d seeds", MAX_SEEDS);
    s->seeds = LHI_NEW(s->mem, uint64_t, list->n_items);
    if (!s->seeds)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        int64_t seed;
        LHI_TRY(lhi_node_get_int(r->doc, node, 0, INT64_MAX, &seed, r->err));
        s->seeds[s->n_seeds++] = (uint64_t)seed;
    }
    return LH_OK;
}

/* Reads all keys of a scenario file in dependency order. */
static lh_status read_scenario(lhi_keys_reader *r, const lhi_node *map)
{
    static const char *const keys[] = {
        "longhaul",      "topology",   "slots",
        "gbps_per_slot", "modulation", "candidate_paths",
        "shared_fibre",  "job",        "jobs",
        "plan",          "background", "request_slots",
        "guard_slots",   "retry_ns",   "setup_ns",
        "teardown_ns",   "iterations", "seeds",
        "policies",      "failures",   NULL};
    lh_scenario *s = r->s;
    const lhi_node *node;
    LHI_TRY(lhi_doc_check_format(r->doc, "optical", 1, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(read_network(r, map));
    LHI_TRY(read_background(r, lhi_node_find(map, "background")));
    uint32_t most = s->network->slots - s->network->guard_slots;
    s->request_slots = most < 2 ? most : 2;
    LHI_TRY(lhi_keys_get_count(r, map, "request_slots", 1, most,
                               &s->request_slots));
    s->retry_ns = 5000000;
    if ((node = lhi_node_find(map, "retry_ns")) != NULL)
        LHI_TRY(lhi_node_get_int(r->doc, node, 1, LHI_MAX_TIME_NS, &s->retry_ns,
                                 r->err));
    for (int i = 0; i < 2; i++)
        if ((node = lhi_node_find(map, i ? "teardown_ns" : "setup_ns")) != NULL)
            LHI_TRY(lhi_node_get_int(r->doc, node, 0, LHI_HOUR_NS,
                                     i ? &s->teardown_ns : &s->setup_ns,
                                     r->err));
    s->iterations = 10;
    LHI_TRY(lhi_keys_get_count(r, map, "iterations", 1, MAX_ITERATIONS,
                               &s->iterations));
    LHI_TRY(read_seeds(r, lhi_node_find(map, "seeds")));
    LHI_TRY(read_failures(r, lhi_node_find(map, "failures")));
    LHI_TRY(read_jobs(r, map));
    LHI_TRY(lhi_node_require(r->doc, map, "policies", &node, r->err));
    return read_policies(r, node);
}

/* --- keys without effect -------------------------------------------------- */

/* The kinds of schedules with which jobs run. */
typedef struct schedule_kinds {
    bool has_1f1b; /* a chain with the built-in 1F1B */
    /* Of a method, a plan or a pipeline: may have separate W. */
    bool has_method;
} schedule_kinds;

/* Adds the kind of schedule that `job` has under `policy`, or under its own. */
static void add_kind(const lhi_optical_job_spec *job, const lhi_policy *policy,
                     schedule_kinds *kinds)
{
    const lhi_policy *own = job->policy ? job->policy : policy;
    const char *name = own->schedule ? own->schedule : job->schedule;
    lhi_program_order order;
    if (lhi_optical_job_pipeline(job) || !lhi_program_order_parse(name, &order))
        kinds->has_method = true;
    else if (order == LHI_1F1B)
        kinds->has_1f1b = true;
}

/* Fails with LH_EINPUT if `map` has the key although no job runs with a
 * schedule to which it applies (`used`). */
static lh_status check_effect(lhi_keys_reader *r, const lhi_node *map,
                              const char *key, bool used, const char *schedule)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node || used)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                        "has no effect, because it applies to %s only; remove "
                        "it",
                        schedule);
}

static const char only_1f1b[] =
    "the schedule 1f1b of jobs without a plan or pipeline";
static const char only_methods[] = "schedules other than gpipe and 1f1b";

/* Checks the options of a policy in `map` that apply to some schedules only,
 * given the kinds of schedules with which its jobs run. */
static lh_status check_policy_effects(lhi_keys_reader *r, const lhi_node *map,
                                      const lhi_policy *policy,
                                      const schedule_kinds *kinds)
{
    LHI_TRY(check_effect(r, map, "warm_up_factor", kinds->has_1f1b, only_1f1b));
    return check_effect(r, map, "fill_idle",
                        kinds->has_method || !policy->fill_idle, only_methods);
}

/* Checks the keys of job number `i`, in `map`, that apply to some schedules
 * only, and those of its own policy. */
static lh_status check_job_effects(lhi_keys_reader *r, const lhi_node *map,
                                   uint32_t i)
{
    const lhi_optical_job_spec *job = &r->s->jobs[i];
    const lhi_node *policy = lhi_node_find(map, "policy");
    schedule_kinds kinds = {false, false};
    for (uint32_t k = 0; k < r->s->n_policies; k++)
        add_kind(job, &r->s->policies[k], &kinds);
    LHI_TRY(check_effect(r, map, "warm_up_factor", kinds.has_1f1b, only_1f1b));
    LHI_TRY(check_effect(r, map, "weight_ns", kinds.has_method, only_methods));
    LHI_TRY(check_effect(r, map, "activation_limit", kinds.has_method,
                         only_methods));
    return policy ? check_policy_effects(r, policy, job->policy, &kinds)
                  : LH_OK;
}

/* Fails with LH_EINPUT if a key of a job or policy has no effect, because it
 * applies to schedules with which no job runs. */
static lh_status check_effects(lhi_keys_reader *r)
{
    const lh_scenario *s = r->s;
    const lhi_node *root = r->doc->root, *job = lhi_node_find(root, "job");
    const lhi_node *list = lhi_node_find(root, "jobs");
    if (list)
        job = list->first;
    for (uint32_t i = 0; job && i < s->n_jobs; i++, job = job->next)
        LHI_TRY(check_job_effects(r, job, i));
    const lhi_node *map = lhi_node_find(root, "policies")->first;
    for (uint32_t k = 0; k < s->n_policies; k++, map = map->next) {
        schedule_kinds kinds = {false, false};
        bool is_used = false;
        for (uint32_t i = 0; i < s->n_jobs; i++) {
            if (s->jobs[i].policy)
                continue;
            add_kind(&s->jobs[i], &s->policies[k], &kinds);
            is_used = true;
        }
        if (is_used)
            LHI_TRY(check_policy_effects(r, map, &s->policies[k], &kinds));
    }
    return LH_OK;
}

lh_status lhi_scenario_build(const lhi_doc *doc, lh_scenario **out,
                             lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lh_scenario *s = mem ? LHI_NEW(mem, lh_scenario, 1) : NULL;
    if (!s) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    s->mem = mem;
    lhi_keys_reader r = {.doc = doc, .s = s, .err = err};
    lh_status status = read_scenario(&r, doc->root);
    if (status == LH_OK)
        *out = s;
    else
        lh_scenario_free(s);
    return status;
}

/* Builds the scenario of a file that is simulated as it is, without a sweep's
 * values: all its keys must have an effect. */
static lh_status build_alone(const lhi_doc *doc, lh_scenario **out,
                             lh_error *err)
{
    lh_scenario *s;
    LHI_TRY(lhi_scenario_build(doc, &s, err));
    lhi_keys_reader r = {.doc = doc, .s = s, .err = err};
    lh_status status = check_effects(&r);
    if (status == LH_OK)
        *out = s;
    else
        lh_scenario_free(s);
    return status;
}

lh_status lh_scenario_parse(const char *text, size_t len, const char *name,
                            lh_scenario **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_SCENARIO, &doc, err));
    lh_status status = build_alone(doc, out, err);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_scenario_read(const char *path, lh_scenario **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_SCENARIO, &doc, err));
    lh_status status = build_alone(doc, out, err);
    lhi_doc_free(doc);
    return status;
}

const char *lh_scenario_file(const lh_scenario *scenario, uint32_t i)
{
    const lhi_scenario_file *file = scenario->files;
    while (file && i-- > 0)
        file = file->next;
    return file ? file->path : NULL;
}

void lh_scenario_free(lh_scenario *scenario)
{
    if (!scenario)
        return;
    for (uint32_t i = 0; scenario->jobs && i < scenario->n_jobs; i++) {
        lh_plan_free(scenario->jobs[i].plan);
        lh_pipeline_free(scenario->jobs[i].pipeline);
    }
    if (!scenario->borrows_network)
        lhi_network_free(scenario->network);
    lh_topology_free(scenario->topology);
    lhi_arena_free(scenario->mem);
}

const lh_topology *lh_scenario_topology(const lh_scenario *scenario)
{
    return scenario->topology;
}

uint32_t lh_scenario_n_jobs(const lh_scenario *scenario)
{
    return scenario->n_jobs;
}
