/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a topology's file. */
#include "network/optical/gnpy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The names of a link's keys. */
typedef struct link_keys {
    const char *a, *b, *km;
} link_keys;

static const link_keys own_keys = {"a", "b", "km"};
/* In the node-link form of NetworkX: json_graph.node_link_data(). */
static const link_keys node_link_keys = {"source", "target", "distance"};

/* A topology reader's state. */
typedef struct reader {
    const lhi_doc *doc;
    const link_keys *keys; /* node_link_keys: other attributes are skipped */
    lh_topology *t;
    int64_t *ids;
    const char **names;
    lh_cable *cables;
    uint32_t *lines; /* line per node, later per cable */
    lh_error *err;
} reader;

/* Returns a node id's index in a sorted array, by binary search; LH_NONE if it
 * is absent. */
static uint32_t find_id(const int64_t *ids, uint32_t n, int64_t id)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ids[low] == id ? low : LH_NONE;
}

/* A node's id and name, for sorting. */
typedef struct named_id {
    int64_t id;
    const char *name;
    const lhi_node *node;
} named_id;

/* Orders nodes by id, for qsort(). */
static int compare_ids(const void *a, const void *b)
{
    int64_t x = ((const named_id *)a)->id, y = ((const named_id *)b)->id;
    return (x > y) - (x < y);
}

/* Reads the id and name of a network node. */
static lh_status read_node(reader *r, const lhi_node *node, named_id *out)
{
    static const char *const keys[] = {"id", "name", NULL};
    const lhi_node *value;
    LHI_TRY(lhi_node_check_map(r->doc, node, r->err));
    if (r->keys == &own_keys)
        LHI_TRY(lhi_node_check_keys(r->doc, node, keys, r->err));
    LHI_TRY(lhi_node_require(r->doc, node, "id", &value, r->err));
    LHI_TRY(lhi_node_get_int(r->doc, value, 0, INT32_MAX, &out->id, r->err));
    out->node = value;
    out->name = "";
    if ((value = lhi_node_find(node, "name")) != NULL) {
        LHI_TRY(lhi_node_get_string(r->doc, value, &out->name, r->err));
        out->name = lhi_arena_strdup(r->t->mem, out->name);
        if (!out->name)
            return lhi_fail_nomem(r->err);
    }
    return LH_OK;
}

/* Reads all nodes and sorts them by id. LH_EINPUT: two nodes have the same id.
 */
static lh_status read_nodes(reader *r, const lhi_node *list)
{
    lh_topology *t = r->t;
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items < 2 || list->n_items > LHI_MAX_NODES)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "%" PRIu32 " nodes; a topology has 2 to %d",
                            list->n_items, LHI_MAX_NODES);
    t->n_nodes = list->n_items;
    r->ids = LHI_NEW(t->mem, int64_t, t->n_nodes);
    r->names = LHI_NEW(t->mem, const char *, t->n_nodes);
    named_id *all = LHI_NEW(t->mem, named_id, t->n_nodes);
    if (!r->ids || !r->names || !all)
        return lhi_fail_nomem(r->err);
    uint32_t n = 0;
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_node(r, node, &all[n++]));
    qsort(all, n, sizeof *all, compare_ids);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && all[i].id == all[i - 1].id)
            return lhi_doc_fail(
                r->doc,
                all[i].node->line > all[i - 1].node->line ? all[i].node
                                                          : all[i - 1].node,
                r->err, LH_EINPUT, "two nodes have the id %" PRId64, all[i].id);
        r->ids[i] = all[i].id;
        r->names[i] = all[i].name;
    }
    t->ids = r->ids;
    t->names = r->names;
    return LH_OK;
}

/* Reads the node id of one end of a link, and returns the node's index in *out.
 */
static lh_status read_endpoint(reader *r, const lhi_node *map, const char *key,
                               uint32_t *out)
{
    const lhi_node *value;
    int64_t id;
    LHI_TRY(lhi_node_require(r->doc, map, key, &value, r->err));
    LHI_TRY(lhi_node_get_int(r->doc, value, 0, INT32_MAX, &id, r->err));
    *out = find_id(r->ids, r->t->n_nodes, id);
    if (*out == LH_NONE)
        return lhi_doc_fail(r->doc, value, r->err, LH_EINPUT,
                            "there is no node %" PRId64, id);
    return LH_OK;
}

lh_status lhi_topology_get_length(const lhi_doc *doc, const lhi_node *node,
                                  int64_t *length_m, lh_error *err)
{
    double km;
    LHI_TRY(lhi_node_get_number(doc, node, 1.0 / LHI_M_PER_KM, LHI_MAX_KM, &km,
                                err));
    *length_m = (int64_t)(km * LHI_M_PER_KM + 0.5);
    return LH_OK;
}

/* Reads a link: its two different ends and its length in km. */
static lh_status read_cable(reader *r, const lhi_node *node, lh_cable *out)
{
    static const char *const keys[] = {"a", "b", "km", NULL};
    const lhi_node *value;
    LHI_TRY(lhi_node_check_map(r->doc, node, r->err));
    if (r->keys == &own_keys)
        LHI_TRY(lhi_node_check_keys(r->doc, node, keys, r->err));
    LHI_TRY(read_endpoint(r, node, r->keys->a, &out->a));
    LHI_TRY(read_endpoint(r, node, r->keys->b, &out->b));
    if (out->a == out->b)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "invalid link from node %" PRId64 " to itself",
                            r->ids[out->a]);
    LHI_TRY(lhi_node_require(r->doc, node, r->keys->km, &value, r->err));
    return lhi_topology_get_length(r->doc, value, &out->length_m, r->err);
}

/* Lists the neighbours and cables of every node, in ascending order of the
 * neighbour, then of the cable. */
static lh_status list_neighbours(reader *r)
{
    lh_topology *t = r->t;
    uint32_t *first = LHI_NEW(t->mem, uint32_t, t->n_nodes + 2);
    lhi_network_neighbour *ways =
        LHI_NEW(t->mem, lhi_network_neighbour, (size_t)t->n_cables * 2);
    uint32_t *count = LHI_NEW(t->mem, uint32_t, t->n_nodes);
    if (!first || !ways || !count)
        return lhi_fail_nomem(r->err);
    for (uint32_t c = 0; c < t->n_cables; c++) {
        first[t->cables[c].a + 1]++;
        first[t->cables[c].b + 1]++;
    }
    for (uint32_t n = 0; n < t->n_nodes; n++)
        first[n + 1] += first[n];
    for (uint32_t c = 0; c < t->n_cables; c++) {
        uint32_t ends[2] = {t->cables[c].a, t->cables[c].b};
        for (uint32_t e = 0; e < 2; e++) {
            lhi_network_neighbour *at = ways + first[ends[e]];
            uint32_t i = count[ends[e]]++;
            for (; i > 0 && at[i - 1].node > ends[1 - e]; i--)
                at[i] = at[i - 1];
            at[i] = (lhi_network_neighbour){.node = ends[1 - e], .cable = c};
        }
    }
    t->first_way = first;
    t->ways = ways;
    return LH_OK;
}

/* Fails with LH_EINPUT if some node is unreachable from the first one. */
static lh_status check_connected(reader *r, const lhi_node *list)
{
    const lh_topology *t = r->t;
    uint32_t *queue = LHI_NEW(t->mem, uint32_t, t->n_nodes);
    bool *seen = LHI_NEW(t->mem, bool, t->n_nodes);
    uint32_t n = 1;
    if (!queue || !seen)
        return lhi_fail_nomem(r->err);
    seen[0] = true;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t w = t->first_way[queue[i]];
             w < t->first_way[queue[i] + 1]; w++)
            if (!seen[t->ways[w].node]) {
                seen[t->ways[w].node] = true;
                queue[n++] = t->ways[w].node;
            }
    for (uint32_t i = 0; i < t->n_nodes; i++)
        if (!seen[i])
            return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                                "no links lead from node %" PRId64
                                " to node %" PRId64
                                "; the network must be connected",
                                t->ids[0], t->ids[i]);
    return LH_OK;
}

/* Reads all links and checks that the network is connected. */
static lh_status read_cables(reader *r, const lhi_node *list)
{
    lh_topology *t = r->t;
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items < 1 || list->n_items > LHI_MAX_CABLES)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "%" PRIu32 " links; a topology has 1 to %d",
                            list->n_items, LHI_MAX_CABLES);
    t->n_cables = list->n_items;
    lh_cable *cables = LHI_NEW(t->mem, lh_cable, t->n_cables);
    if (!cables)
        return lhi_fail_nomem(r->err);
    uint32_t n = 0;
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(read_cable(r, node, &cables[n++]));
    t->cables = cables;
    LHI_TRY(list_neighbours(r));
    return check_connected(r, list);
}

/* Reads `gnpy`: nodes, cables and noise from GNPy's files. Nodes are numbered
 * from 1. */
static lh_status read_gnpy(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"network", "equipment", NULL};
    lh_topology *t = r->t;
    const lhi_node *node;
    lhi_gnpy_network net;
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    for (int i = 0; i < 2; i++) {
        LHI_TRY(lhi_node_require(r->doc, map, keys[i], &node, r->err));
        LHI_TRY(lhi_optical_resolve_file(r->doc, node, t->mem, &t->files[i],
                                         r->err));
    }
    lh_status status = lhi_gnpy_read(t->files, t->mem, &net, r->err);
    if (status != LH_OK) {
        lhi_fail_add_context(r->err, "%s:%" PRIu32, r->doc->file, map->line);
        return status;
    }
    int64_t *ids = LHI_NEW(t->mem, int64_t, net.n_nodes);
    if (!ids)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < net.n_nodes; i++)
        ids[i] = i + 1;
    t->ids = ids;
    t->names = net.names;
    t->n_nodes = net.n_nodes;
    t->cables = net.cables;
    t->n_cables = net.n_cables;
    t->gn = net.gn;
    LHI_TRY(list_neighbours(r));
    return check_connected(r, map);
}

/* Reads a graph in the node-link form of NetworkX: undirected, with a distance
 * in km per link. */
static lh_status read_node_link(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {
        "directed", "multigraph", "graph", "nodes", "links", "edges", NULL};
    const lhi_node *nodes, *links = lhi_node_find(map, "edges"), *node;
    bool is_directed;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    node = lhi_node_find(map, "directed");
    LHI_TRY(lhi_node_get_bool(r->doc, node, &is_directed, r->err));
    if (is_directed)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "a topology has cables with a fibre per direction; "
                            "save the undirected graph");
    r->keys = &node_link_keys;
    r->t->name = lhi_arena_strdup(r->t->mem, "");
    if (!r->t->name)
        return lhi_fail_nomem(r->err);
    LHI_TRY(lhi_node_require(r->doc, map, "nodes", &nodes, r->err));
    LHI_TRY(read_nodes(r, nodes));
    if (!links)
        LHI_TRY(lhi_node_require(r->doc, map, "links", &links, r->err));
    return read_cables(r, links);
}

/* Reads a topology's map: name, unit, nodes and links. */
static lh_status read_topology(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"longhaul", "name", "unit", "nodes",
                                       "links",    "gnpy", NULL};
    static const char *const units[] = {"km", NULL};
    const lhi_node *value;
    uint32_t unit;
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    if (lhi_node_find(map, "directed"))
        return read_node_link(r, map);
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    if (lhi_node_find(map, "longhaul"))
        LHI_TRY(lhi_node_check_format(r->doc, map, "topology", 1, r->err));
    r->t->name = "";
    if ((value = lhi_node_find(map, "name")) != NULL)
        LHI_TRY(lhi_node_get_string(r->doc, value, &r->t->name, r->err));
    r->t->name = lhi_arena_strdup(r->t->mem, r->t->name);
    if (!r->t->name)
        return lhi_fail_nomem(r->err);
    if ((value = lhi_node_find(map, "unit")) != NULL)
        LHI_TRY(lhi_node_get_choice(r->doc, value, units, &unit, r->err));
    const lhi_node *gnpy = lhi_node_find(map, "gnpy");
    value = lhi_node_find(map, "nodes");
    if (gnpy && value)
        return lhi_doc_fail(r->doc, value, r->err, LH_EINPUT,
                            "cannot be combined with gnpy, which names the "
                            "nodes; remove one of them");
    if (gnpy)
        return read_gnpy(r, gnpy);
    LHI_TRY(lhi_node_require(r->doc, map, "nodes", &value, r->err));
    LHI_TRY(read_nodes(r, value));
    LHI_TRY(lhi_node_require(r->doc, map, "links", &value, r->err));
    return read_cables(r, value);
}

lh_status lhi_topology_parse_node(const lhi_doc *doc, const lhi_node *map,
                                  lh_topology **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_topology *t = LHI_NEW(mem, lh_topology, 1);
    reader r = {.doc = doc, .keys = &own_keys, .t = t, .err = err};
    if (t)
        t->mem = mem;
    lh_status status = t ? read_topology(&r, map) : lhi_fail_nomem(err);
    if (status == LH_OK)
        *out = t;
    else
        lhi_arena_free(mem);
    return status;
}

lh_status lhi_topology_parse(const char *text, size_t len, const char *name,
                             lh_topology **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_TOPOLOGY, &doc, err));
    lh_status status = lhi_topology_parse_node(doc, doc->root, out, err);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_topology_read(const char *path, lh_topology **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_TOPOLOGY, &doc, err));
    lh_status status = lhi_topology_parse_node(doc, doc->root, out, err);
    lhi_doc_free(doc);
    return status;
}

void lh_topology_free(lh_topology *topology)
{
    if (topology)
        lhi_arena_free(topology->mem);
}

const char *lh_topology_name(const lh_topology *topology)
{
    return topology->name;
}

uint32_t lh_topology_n_nodes(const lh_topology *topology)
{
    return topology->n_nodes;
}

int64_t lhi_topology_node_id(const lh_topology *topology, uint32_t node)
{
    return topology->ids[node];
}

uint32_t lhi_topology_find(const lh_topology *topology, int64_t id)
{
    return find_id(topology->ids, topology->n_nodes, id);
}

uint32_t lh_topology_n_cables(const lh_topology *topology)
{
    return topology->n_cables;
}

const lh_cable *lhi_topology_cable(const lh_topology *topology, uint32_t cable)
{
    return &topology->cables[cable];
}
