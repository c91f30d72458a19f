/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and replaying execution traces of MLCommons Chakra (et_def.proto of
 * mlcommons/chakra 0.0.4). Longest paths over all ranks' nodes, by
 * topological order; receives follow their sends, and collectives of a group
 * start together. */
#include "base/arena.h"
#include "base/fail.h"
#include "interop/chakra_schema.h"

#include <longhaul/experimental/chakra.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Largest time: a double holds each nanosecond up to it. */
#define MOST_NS (INT64_C(1) << 53)

/* A node. Times are in nanoseconds. */
typedef struct node {
    uint64_t id;
    int64_t duration_ns, occupied_ns, start_ns;
    int64_t source, destination, tag; /* of a message */
    const char *group;      /* process group of a collective, in its file */
    size_t group_len;       /* 0: the collective is alone */
    uint32_t rank, ordinal; /* collectives: position in their group */
    uint32_t meeting;       /* first collective of its meeting */
    uint32_t missing;       /* dependencies not yet known */
    uint32_t first_edge;    /* UINT32_MAX: none */
    uint32_t type;
    bool has_operations; /* num_ops */
    bool has_bytes;      /* comm_size */
    bool is_timed;       /* the file has a duration, perhaps 0 */
} node;

/* An edge to a node that starts `after_ns` after another one. */
typedef struct edge {
    uint32_t to, next; /* next edge of the same node */
    int64_t after_ns;
} edge;

/* A dependency as read. */
typedef struct dependency {
    uint32_t node;
    bool is_data;
    uint64_t on; /* id on the same rank */
} dependency;

/* The replay's state. */
typedef struct replayer {
    lhi_arena *mem;
    const lh_chakra_file *files;
    uint32_t n_files;
    node *nodes;
    uint32_t n_nodes, *first; /* n_files + 1: each rank's nodes, by id */
    dependency *dependencies;
    size_t n_dependencies;
    edge *edges;
    uint32_t n_edges;
} replayer;

/* --- protocol buffers ----------------------------------------------------- */

/* A part of a message; `damaged` after an error. */
typedef struct cursor {
    const uint8_t *at, *end;
    bool damaged;
} cursor;

/* A field: a number, or bytes. */
typedef struct field {
    uint32_t number;
    uint64_t value;
    cursor bytes; /* of a length-delimited field */
    bool is_bytes;
} field;

/* Reads a varint, the variable-length integer of Protocol Buffers; marks the
 * cursor as damaged if it is cut off. */
static uint64_t read_varint(cursor *c)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        const uint8_t byte = *c->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    c->damaged = true;
    return 0;
}

/* Returns the next `len` bytes as their own cursor and skips them; marks the
 * cursor as damaged if there are fewer. */
static cursor read_bytes(cursor *c, uint64_t len)
{
    cursor part = {c->at, c->at, false};
    if (len > (uint64_t)(c->end - c->at)) {
        c->damaged = true;
        return part;
    }
    part.end = c->at += len;
    return part;
}

/* Reads the next field of a Protocol Buffers message into *out. Returns false
 * at the message's end, or after an error. */
static bool read_field(cursor *c, field *out)
{
    if (c->at == c->end || c->damaged)
        return false;
    const uint64_t tag = read_varint(c);
    *out = (field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case LHI_WIRE_VARINT:
        out->value = read_varint(c);
        break;
    case LHI_WIRE_FIXED64:
        read_bytes(c, 8);
        break;
    case LHI_WIRE_BYTES:
        out->bytes = read_bytes(c, read_varint(c));
        out->is_bytes = true;
        break;
    case LHI_WIRE_FIXED32:
        read_bytes(c, 4);
        break;
    default:
        c->damaged = true;
        break;
    }
    return !c->damaged;
}

/* Checks whether a field's bytes equal a text. */
static bool is_text(const cursor *bytes, const char *text)
{
    const size_t len = strlen(text);
    return (size_t)(bytes->end - bytes->at) == len &&
           memcmp(bytes->at, text, len) == 0;
}

/* --- nodes ---------------------------------------------------------------- */

/* Returns a duration in ns as int64_t; INT64_MAX, which check_node() rejects,
 * if it is above that type's range. */
static int64_t limit_duration(int64_t ns)
{
    return ns < 0 ? INT64_MAX : ns;
}

/* Reads an attribute, such as comm_tag, and stores its value in node `n` of the
 * trace; ignores unknown ones. */
static void read_attribute(cursor *c, node *n)
{
    field f;
    cursor name = {0}, text = {0};
    int64_t value = 0;
    while (read_field(c, &f)) {
        if (f.number == LHI_CHAKRA_ATTRIBUTE_NAME && f.is_bytes)
            name = f.bytes;
        else if (f.is_bytes)
            text = f.bytes;
        else
            value = (int64_t)f.value;
    }
    if (c->damaged || !name.at)
        return;
    if (is_text(&name, "comm_src"))
        n->source = value;
    else if (is_text(&name, "comm_dst"))
        n->destination = value;
    else if (is_text(&name, "comm_tag"))
        n->tag = value;
    else if (is_text(&name, "comm_size"))
        n->has_bytes = value > 0;
    else if (is_text(&name, "duration_ns"))
        n->duration_ns = limit_duration(value);
    else if (is_text(&name, "occupied_ns"))
        n->occupied_ns = limit_duration(value);
    else if (is_text(&name, "num_ops"))
        n->has_operations = value > 0;
    else if (is_text(&name, "pg_name") && text.at) {
        n->group = (const char *)text.at;
        n->group_len = (size_t)(text.end - text.at);
    }
}

/* Adds to the trace node being read a dependency on the node with id `on`: on
 * its end, or if not is_data on its start. In the first reading of the files
 * only counts it. */
static void add_dependency(replayer *r, uint64_t on, bool is_data)
{
    if (r->dependencies)
        r->dependencies[r->n_dependencies] =
            (dependency){r->n_nodes, is_data, on};
    r->n_dependencies++;
}

/* Adds a dependency of the node for each node id in field `f`, which is a
 * packed list or a single id. */
static void read_dependencies(replayer *r, cursor *c, field *f)
{
    const bool is_data = f->number == LHI_CHAKRA_DATA;
    if (!f->is_bytes)
        add_dependency(r, f->value, is_data);
    while (f->is_bytes && f->bytes.at < f->bytes.end && !f->bytes.damaged)
        add_dependency(r, read_varint(&f->bytes), is_data);
    c->damaged = c->damaged || f->bytes.damaged;
}

/* Reads a trace node of rank `rank` and appends it. In the first reading of the
 * files only counts it and its dependencies. */
static void read_node(replayer *r, cursor *c, uint32_t rank)
{
    field f;
    node n = {.rank = rank,
              .source = -1,
              .destination = -1,
              .occupied_ns = -1,
              .duration_ns = -1,
              .first_edge = UINT32_MAX};
    uint64_t micros = 0;
    while (read_field(c, &f)) {
        if (f.number == LHI_CHAKRA_ID && !f.is_bytes)
            n.id = f.value;
        else if (f.number == LHI_CHAKRA_TYPE && !f.is_bytes)
            n.type = (uint32_t)f.value;
        else if (f.number == LHI_CHAKRA_CONTROL || f.number == LHI_CHAKRA_DATA)
            read_dependencies(r, c, &f);
        else if (f.number == LHI_CHAKRA_DURATION && !f.is_bytes)
            micros = f.value;
        else if (f.number == LHI_CHAKRA_ATTRIBUTE && f.is_bytes) {
            read_attribute(&f.bytes, &n);
            c->damaged = c->damaged || f.bytes.damaged;
        }
    }
    n.is_timed = n.duration_ns >= 0 || micros > 0;
    if (n.duration_ns < 0)
        n.duration_ns =
            micros > (uint64_t)MOST_NS ? INT64_MAX : (int64_t)micros * 1000;
    if (n.occupied_ns < 0)
        n.occupied_ns = n.duration_ns;
    if (r->nodes)
        r->nodes[r->n_nodes] = n;
    r->n_nodes++;
}

/* Reads the trace file of `rank`: metadata, then nodes. LH_EINPUT: it is
 * damaged or too large. */
static lh_status read_file(replayer *r, uint32_t rank, lh_error *err)
{
    const lh_chakra_file *file = &r->files[rank];
    cursor c = {(const uint8_t *)file->data,
                (const uint8_t *)file->data + file->len, false};
    bool is_first = true;
    while (c.at < c.end && !c.damaged) {
        cursor message = read_bytes(&c, read_varint(&c));
        field f;
        if (is_first)
            while (read_field(&message, &f))
                continue;
        else
            read_node(r, &message, rank);
        is_first = false;
        c.damaged = c.damaged || message.damaged;
    }
    if (c.damaged || is_first)
        return lhi_fail(err, LH_EINPUT,
                        "%s: is not an execution trace of Chakra: damaged at "
                        "byte %zu",
                        file->name,
                        (size_t)(c.at - (const uint8_t *)file->data));
    if (r->n_nodes > UINT32_MAX / 8 || r->n_dependencies > UINT32_MAX / 8)
        return lhi_fail(err, LH_EINPUT, "%s: has too many nodes", file->name);
    return LH_OK;
}

/* Fails with `code` and a message with the file and id of a trace node, and the
 * reason `why`. */
static lh_status fail_node(const replayer *r, const node *n, lh_status code,
                           lh_error *err, const char *why)
{
    return lhi_fail(err, code, "%s: node %" PRIu64 ": %s",
                    r->files[n->rank].name, n->id, why);
}

/* Checks that a trace node has a duration, in range. LH_EINPUT otherwise. */
static lh_status check_node(const replayer *r, const node *n, lh_error *err)
{
    if (n->type == LHI_CHAKRA_COMPUTE && n->duration_ns == 0 &&
        n->has_operations)
        return fail_node(r, n, LH_EINPUT, err,
                         "has a number of operations but no duration; only "
                         "traces with durations are replayed");
    if (n->type >= LHI_CHAKRA_SEND && n->type <= LHI_CHAKRA_COLLECTIVE &&
        !n->is_timed && n->has_bytes)
        return fail_node(r, n, LH_EINPUT, err,
                         "has a number of bytes but no duration; only traces "
                         "with durations are replayed");
    if (n->duration_ns > MOST_NS || n->occupied_ns > MOST_NS ||
        n->occupied_ns > n->duration_ns)
        return fail_node(r, n, LH_EINPUT, err,
                         "has a duration above 2^53 ns, or less than its "
                         "occupied_ns");
    return LH_OK;
}

/* Reads all trace files twice: first counts nodes and dependencies, then
 * allocates and stores them. */
static lh_status read_files(replayer *r, lh_error *err)
{
    r->first = LHI_NEW(r->mem, uint32_t, (size_t)r->n_files + 1);
    if (!r->first)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < r->n_files; i++)
        LHI_TRY(read_file(r, i, err));
    r->nodes = LHI_NEW(r->mem, node, (size_t)r->n_nodes + 1);
    r->dependencies = LHI_NEW(r->mem, dependency, r->n_dependencies + 1);
    r->edges = LHI_NEW(r->mem, edge, r->n_dependencies + r->n_nodes + 1);
    if (!r->nodes || !r->dependencies || !r->edges)
        return lhi_fail_nomem(err);
    r->n_nodes = 0;
    r->n_dependencies = 0;
    for (uint32_t i = 0; i < r->n_files; i++) {
        LHI_TRY(read_file(r, i, err));
        r->first[i + 1] = r->n_nodes;
    }
    for (uint32_t i = 0; i < r->n_nodes; i++)
        LHI_TRY(check_node(r, &r->nodes[i], err));
    return LH_OK;
}

/* --- edges ---------------------------------------------------------------- */

/* A node by a key: its id on a rank, its message, or its meeting. */
typedef struct key {
    const node *node;
    uint32_t index;
} key;

/* Compares two numbers: negative, 0 or positive. */
static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Compares trace nodes by rank, then by id, for qsort() and bsearch(). */
static int compare_ids(const void *a, const void *b)
{
    const node *x = ((const key *)a)->node, *y = ((const key *)b)->node;
    return x->rank != y->rank ? compare_numbers(x->rank, y->rank)
                              : compare_numbers(x->id, y->id);
}

/* Compares send and receive nodes by sender, receiver and tag, a send before
 * its receive, for qsort(). */
static int compare_messages(const void *a, const void *b)
{
    const node *x = ((const key *)a)->node, *y = ((const key *)b)->node;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->destination != y->destination)
        return x->destination < y->destination ? -1 : 1;
    if (x->tag != y->tag)
        return x->tag < y->tag ? -1 : 1;
    return (int)x->type - (int)y->type;
}

/* Compares the names of two collectives' process groups: negative, 0 or
 * positive. */
static int compare_group_names(const node *a, const node *b)
{
    const size_t len =
        a->group_len < b->group_len ? a->group_len : b->group_len;
    const int order = len ? memcmp(a->group, b->group, len) : 0;
    return order ? order : compare_numbers(a->group_len, b->group_len);
}

/* Compares collectives by process group, then by position in all files, for
 * qsort(). */
static int compare_groups(const void *a, const void *b)
{
    const key *x = a, *y = b;
    const int group = compare_group_names(x->node, y->node);
    return group ? group : compare_numbers(x->index, y->index);
}

/* Compares collectives by process group, then by ordinal (their number among
 * the group's collectives on one rank), then by position in all files, for
 * qsort(). */
static int compare_meetings(const void *a, const void *b)
{
    const key *x = a, *y = b;
    const int group = compare_group_names(x->node, y->node);
    if (group)
        return group;
    if (x->node->ordinal != y->node->ordinal)
        return compare_numbers(x->node->ordinal, y->node->ordinal);
    return compare_numbers(x->index, y->index);
}

/* Returns the trace nodes with types from `from` to `to`, as keys sorted by
 * compare(); *n is their number. NULL if memory runs out. */
static key *sort_nodes(const replayer *r, uint32_t from, uint32_t to,
                       int compare(const void *, const void *), uint32_t *n)
{
    key *keys = LHI_NEW(r->mem, key, (size_t)r->n_nodes + 1);
    *n = 0;
    for (uint32_t i = 0; keys && i < r->n_nodes; i++)
        if (r->nodes[i].type >= from && r->nodes[i].type <= to)
            keys[(*n)++] = (key){&r->nodes[i], i};
    if (keys)
        qsort(keys, *n, sizeof *keys, compare);
    return keys;
}

/* Records that node `to` can start after_ns after node `from` starts at the
 * earliest. */
static void add_edge(replayer *r, uint32_t from, uint32_t to, int64_t after_ns)
{
    node *n = &r->nodes[from];
    r->edges[r->n_edges] = (edge){to, n->first_edge, after_ns};
    n->first_edge = r->n_edges++;
    r->nodes[to].missing++;
}

/* Records the dependencies between each rank's nodes. LH_EINPUT: two nodes have
 * one id, or a node depends on a missing one. */
static lh_status connect_ranks(replayer *r, lh_error *err)
{
    uint32_t n;
    key *keys = sort_nodes(r, 0, UINT32_MAX, compare_ids, &n);
    if (!keys)
        return lhi_fail_nomem(err);
    for (uint32_t i = 1; i < n; i++)
        if (compare_ids(&keys[i - 1], &keys[i]) == 0)
            return fail_node(r, keys[i].node, LH_EINPUT, err, "occurs twice");
    for (size_t i = 0; i < r->n_dependencies; i++) {
        const dependency *d = &r->dependencies[i];
        const node *own = &r->nodes[d->node];
        const node wanted = {.rank = own->rank, .id = d->on};
        const key *found =
            bsearch(&(key){&wanted, 0}, keys, n, sizeof *keys, compare_ids);
        if (!found)
            return lhi_fail(err, LH_EINPUT,
                            "%s: node %" PRIu64 ": depends on node %" PRIu64
                            ", which is not in the file; convert the trace "
                            "again, with all nodes",
                            r->files[own->rank].name, own->id, d->on);
        add_edge(r, found->index, own->meeting,
                 d->is_data ? found->node->duration_ns
                            : found->node->occupied_ns);
    }
    return LH_OK;
}

/* Records that each receive waits for its send. LH_EINPUT: a send or a receive
 * has no ranks or no counterpart. */
static lh_status connect_messages(replayer *r, lh_error *err)
{
    uint32_t n;
    key *keys = sort_nodes(r, LHI_CHAKRA_SEND, LHI_CHAKRA_RECEIVE,
                           compare_messages, &n);
    if (!keys)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i += 2) {
        const node *send = keys[i].node;
        const node *receive = i + 1 < n ? keys[i + 1].node : send;
        if (send->source < 0 || send->destination < 0)
            return fail_node(r, send, LH_EINPUT, err,
                             "has no rank in comm_src or comm_dst");
        if (send->type != LHI_CHAKRA_SEND ||
            receive->type != LHI_CHAKRA_RECEIVE ||
            send->source != receive->source ||
            send->destination != receive->destination ||
            send->tag != receive->tag)
            return fail_node(r, send, LH_EINPUT, err,
                             "is a message without its other end, or has the "
                             "ends and tag of another one");
        add_edge(r, keys[i].index, keys[i + 1].index, 0);
    }
    return LH_OK;
}

/* Finds the collectives that start together: the k-th ones on all ranks of a
 * process group. Each node gets the first rank's node as its `meeting`, which
 * stands for the common start. */
static lh_status find_meetings(replayer *r, lh_error *err)
{
    uint32_t n;
    key *keys;
    for (uint32_t i = 0; i < r->n_nodes; i++)
        r->nodes[i].meeting = i;
    keys = sort_nodes(r, LHI_CHAKRA_COLLECTIVE, LHI_CHAKRA_COLLECTIVE,
                      compare_groups, &n);
    if (!keys)
        return lhi_fail_nomem(err);
    for (uint32_t i = 1; i < n; i++) {
        const node *before = keys[i - 1].node;
        node *own = &r->nodes[keys[i].index];
        if (own->rank == before->rank && compare_group_names(own, before) == 0)
            own->ordinal = before->ordinal + 1;
    }
    qsort(keys, n, sizeof *keys, compare_meetings);
    for (uint32_t i = 1; i < n; i++) {
        const node *before = keys[i - 1].node;
        node *own = &r->nodes[keys[i].index];
        if (!own->group_len || own->ordinal != before->ordinal ||
            compare_group_names(own, before) != 0)
            continue;
        own->meeting = before->meeting;
        add_edge(r, own->meeting, keys[i].index, 0);
    }
    return LH_OK;
}

/* --- times ---------------------------------------------------------------- */

/* Computes every node's start: as soon as its dependencies allow.
 * LH_EDEADLOCK: nodes wait for each other. */
static lh_status find_starts(replayer *r, lh_error *err)
{
    uint32_t *ready = LHI_NEW(r->mem, uint32_t, (size_t)r->n_nodes + 1);
    uint32_t n = 0;
    if (!ready)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].missing == 0)
            ready[n++] = i;
    for (uint32_t i = 0; i < n; i++) {
        const node *from = &r->nodes[ready[i]];
        for (uint32_t e = from->first_edge; e != UINT32_MAX;
             e = r->edges[e].next) {
            node *to = &r->nodes[r->edges[e].to];
            const int64_t at_ns = from->start_ns + r->edges[e].after_ns;
            to->start_ns = at_ns > to->start_ns ? at_ns : to->start_ns;
            if (to->start_ns > MOST_NS)
                return fail_node(r, to, LH_EINPUT, err, "starts too late");
            if (--to->missing == 0)
                ready[n++] = r->edges[e].to;
        }
    }
    for (uint32_t i = 0; n < r->n_nodes && i < r->n_nodes; i++)
        if (r->nodes[i].missing)
            return fail_node(r, &r->nodes[i], LH_EDEADLOCK, err,
                             "waits for nodes that wait for it");
    return LH_OK;
}

/* A result with its arena. */
typedef struct owned_replay {
    lh_chakra replay; /* first member, so lh_chakra_free() can find the arena */
    lhi_arena *mem;
} owned_replay;

/* Builds the replay's result, *out, which the caller frees: per rank the node
 * count, the end and the computing time. LH_EINPUT: the latter is too long. */
static lh_status build_result(const replayer *r, lh_chakra **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    owned_replay *held = mem ? LHI_NEW(mem, owned_replay, 1) : NULL;
    lh_chakra_rank *ranks =
        held ? LHI_NEW(mem, lh_chakra_rank, r->n_files) : NULL;
    if (!ranks) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    held->mem = mem;
    held->replay = (lh_chakra){.n_ranks = r->n_files, .ranks = ranks};
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const node *n = &r->nodes[i];
        lh_chakra_rank *rank = &ranks[n->rank];
        const int64_t end_ns = n->start_ns + n->duration_ns;
        rank->n_nodes++;
        rank->end_ns = end_ns > rank->end_ns ? end_ns : rank->end_ns;
        if (n->type == LHI_CHAKRA_COMPUTE)
            rank->compute_ns += n->duration_ns;
        if (rank->compute_ns > MOST_NS) {
            lhi_arena_free(mem);
            return fail_node(r, n, LH_EINPUT, err,
                             "its rank computes for more than 2^53 ns");
        }
        if (rank->end_ns > held->replay.total_ns)
            held->replay.total_ns = rank->end_ns;
    }
    *out = &held->replay;
    return LH_OK;
}

void lh_chakra_free(lh_chakra *replay)
{
    if (replay)
        lhi_arena_free(((owned_replay *)replay)->mem);
}

lh_status lh_chakra_replay(const lh_chakra_file *files, uint32_t n_files,
                           lh_chakra **out, lh_error *err)
{
    if (n_files == 0)
        return lhi_fail(err, LH_EINVAL, "no execution traces");
    replayer r = {.mem = lhi_arena_make(0), .files = files, .n_files = n_files};
    if (!r.mem)
        return lhi_fail_nomem(err);
    lh_status status = read_files(&r, err);
    if (status == LH_OK)
        status = find_meetings(&r, err);
    if (status == LH_OK)
        status = connect_ranks(&r, err);
    if (status == LH_OK)
        status = connect_messages(&r, err);
    if (status == LH_OK)
        status = find_starts(&r, err);
    if (status == LH_OK)
        status = build_result(&r, out, err);
    lhi_arena_free(r.mem);
    return status;
}
