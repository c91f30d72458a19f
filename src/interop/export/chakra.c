/* SPDX-License-Identifier: Apache-2.0 */
/* MLCommons Chakra execution traces (schema/protobuf/et_def.proto of
 * mlcommons/chakra 0.0.4): a file per rank, with length-delimited messages, one
 * GlobalMetadata and then Nodes. docs/formats/chakra.md describes them.
 * Chakra's own feeder, and hence ASTRA-sim, reads data dependencies only; the
 * order of passes and messages is therefore one of data, too. */
#include "interop/chakra_schema.h"
#include "interop/export/export_internal.h"

#include "base/arena.h"
#include "model/paths.h"
#include "planner/layout/choice.h"
#include "planner/layout/layout.h"
#include "report/trace/trace_internal.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/export.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- protocol buffers ----------------------------------------------------- */

/* Appends a number as a varint, the variable-length integer of Protocol
 * Buffers. */
static void put_varint(lhi_text *out, uint64_t value)
{
    char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (char)(value | 0x80);
    bytes[n++] = (char)value;
    lhi_text_add(out, bytes, n);
}

/* Appends the number `value` as field number `field` of a Protocol Buffers
 * message. */
static void put_number(lhi_text *out, uint32_t field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3 | LHI_WIRE_VARINT);
    put_varint(out, value);
}

/* Appends `len` bytes as field number `field` of a Protocol Buffers message: a
 * nested message or a text. */
static void put_bytes(lhi_text *out, uint32_t field, const char *bytes,
                      size_t len)
{
    put_varint(out, (uint64_t)field << 3 | LHI_WIRE_BYTES);
    put_varint(out, len);
    lhi_text_add(out, bytes, len);
}

/* Appends a text as field number `field` of a Protocol Buffers message. */
static void put_string(lhi_text *out, uint32_t field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* --- messages ------------------------------------------------------------- */

/* Appends an attribute called `name` as field `to` of a message. Its number
 * `value` goes to `field` of AttributeProto, which determines its type. */
static void put_attribute(lhi_text *out, uint32_t to, const char *name,
                          uint32_t field, uint64_t value)
{
    lhi_text attribute = {0};
    put_string(&attribute, LHI_CHAKRA_ATTRIBUTE_NAME, name);
    put_number(&attribute, field, value);
    put_bytes(out, to, attribute.data, attribute.len);
    out->failed = out->failed || attribute.failed;
    lhi_text_fini(&attribute);
}

/* Appends an attribute called `name` with the text `value` as field `to` of a
 * message. */
static void put_text_attribute(lhi_text *out, uint32_t to, const char *name,
                               const char *value)
{
    lhi_text attribute = {0};
    put_string(&attribute, LHI_CHAKRA_ATTRIBUTE_NAME, name);
    put_string(&attribute, LHI_CHAKRA_ATTRIBUTE_STRING, value);
    put_bytes(out, to, attribute.data, attribute.len);
    out->failed = out->failed || attribute.failed;
    lhi_text_fini(&attribute);
}

/* Converts ns to microseconds, the unit of Chakra's schema, rounded to the
 * nearest. */
static uint64_t to_micros(int64_t ns)
{
    return (uint64_t)((ns + 500) / 1000);
}

/* --- nodes ---------------------------------------------------------------- */

/* The kinds of nodes. */
typedef enum node_kind { RUN, SEND, RECEIVE, COLLECTIVE } node_kind;

/* A node of a device, before its encoding. */
typedef struct node {
    int64_t start_ns;
    uint64_t id;
    node_kind kind;
    uint32_t index; /* of the run, message or collective in the trace */
} node;

/* The export's state. Lists of indices end with LH_NONE. */
typedef struct chakra {
    const lh_pipeline *pipeline;
    const lh_plan *plan; /* NULL: a pipeline */
    const lh_trace *trace;
    lhi_arena *mem;
    uint32_t replicas;
    uint32_t *first_run;         /* n_devices + 1 */
    uint32_t *producers;         /* run of each message's producer */
    uint32_t *consumers;         /* run of each message's consumer */
    uint32_t *messages_of;       /* first message that a run consumes */
    uint32_t *next_message;      /* next one of the same run */
    uint32_t *collectives_of;    /* first gather that a run waits for */
    uint32_t *next_collective;   /* next one of the same run */
    uint32_t *send_before;       /* message before it on its link */
    uint32_t *collective_before; /* collective before it on its device */
    double *bytes_per_ns;        /* per chunk: gathers, then reductions */
    int64_t message_bytes;       /* 0: unknown */
    node *nodes;                 /* of one device */
    uint32_t n_nodes;
    lhi_text file, one; /* a rank's file; one node */
} chakra;

/* Returns the id in the node's trace file for run number `run` (a pass executed
 * on a device). */
static uint64_t id_of_run(uint32_t run)
{
    return (uint64_t)run + 1;
}

/* Returns the id of the trace node that sends message number `message`. */
static uint64_t id_of_send(const chakra *c, uint32_t message)
{
    return (uint64_t)c->trace->n_runs + 2 * (uint64_t)message + 1;
}

/* Returns the id of the trace node that receives message number `message`. */
static uint64_t id_of_receive(const chakra *c, uint32_t message)
{
    return id_of_send(c, message) + 1;
}

/* Returns the trace node's id for data-parallel collective number
 * `collective`. */
static uint64_t id_of_collective(const chakra *c, uint32_t collective)
{
    return (uint64_t)c->trace->n_runs + 2 * (uint64_t)c->trace->n_messages +
           collective + 1;
}

/* Returns the trace node's id for the optimizer step, which is the largest. */
static uint64_t id_of_step(const chakra *c)
{
    return id_of_collective(c, c->trace->n_collectives);
}

/* Returns the rank of device `device` in replica `replica`. Stages vary
 * slowest, unless the plan's layout has replicas outermost. */
static uint32_t rank_of(const chakra *c, uint32_t device, uint32_t replica)
{
    const bool by_replica =
        c->plan &&
        lh_layout_rank_order(&c->plan->best.layout) == LH_OUTERMOST_DATA;
    return by_replica ? replica * c->trace->n_devices + device
                      : device * c->replicas + replica;
}

/* Compares trace nodes by start time, then by id, for qsort(). */
static int compare_nodes(const void *a, const void *b)
{
    const node *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Appends a trace node to c->nodes, the current device's list: its start, id
 * and kind; `index`: the number of its run, message or collective in the
 * predicted trace. */
static void add_node(chakra *c, int64_t start_ns, uint64_t id, node_kind kind,
                     uint32_t index)
{
    c->nodes[c->n_nodes++] = (node){start_ns, id, kind, index};
}

/* Lists a device's trace nodes in c->nodes, sorted by start time: its passes,
 * sends, receives and collectives. */
static void list_nodes(chakra *c, uint32_t device)
{
    const lh_trace *t = c->trace;
    c->n_nodes = 0;
    for (uint32_t r = c->first_run[device]; r < c->first_run[device + 1]; r++)
        add_node(c, t->runs[r].start_ns, id_of_run(r), RUN, r);
    for (uint32_t m = 0; m < t->n_messages; m++) {
        const lh_trace_message *message = &t->messages[m];
        if (message->from == device)
            add_node(c, message->depart_ns, id_of_send(c, m), SEND, m);
        if (message->to == device)
            add_node(c, message->depart_ns, id_of_receive(c, m), RECEIVE, m);
    }
    for (uint32_t k = 0; k < t->n_collectives; k++)
        if (t->collectives[k].device == device)
            add_node(c, t->collectives[k].depart_ns, id_of_collective(c, k),
                     COLLECTIVE, k);
    qsort(c->nodes, c->n_nodes, sizeof *c->nodes, compare_nodes);
}

/* --- dependencies --------------------------------------------------------- */

/* Allocates an array of `n` indices in `mem`, all LH_NONE; NULL if memory runs
 * out. */
static uint32_t *new_indices(lhi_arena *mem, uint32_t n)
{
    uint32_t *all = LHI_NEW(mem, uint32_t, (size_t)n + 1);
    for (uint32_t i = 0; all && i < n; i++)
        all[i] = LH_NONE;
    return all;
}

/* Returns the index of a device's first run (pass) that starts at `at_ns` or
 * later; its runs' end if there is none. */
static uint32_t run_from(const chakra *c, uint32_t device, int64_t at_ns)
{
    uint32_t low = c->first_run[device], high = c->first_run[device + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->trace->runs[middle].start_ns < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the number of the run (pass) that waits for gather `k`: the first one
 * of its chunk and direction, forward or backward, after the gather's end.
 * LH_NONE: there is none, or `k` is a reduction. */
static uint32_t find_gather_consumer(const chakra *c,
                                     const lh_trace_collective *k)
{
    const bool backward = k->kind == LH_DP_AGB;
    uint32_t r = run_from(c, k->device, k->arrive_ns);
    if (k->is_reduce_scatter)
        return LH_NONE;
    for (; r < c->first_run[k->device + 1]; r++)
        if (c->trace->runs[r].pass.chunk == k->chunk &&
            (c->trace->runs[r].pass.kind != LH_F) == backward)
            return r;
    return LH_NONE;
}

/* Records for each collective the previous one on its device, and for each run
 * (pass) the gathers that it waits for. */
static lh_status connect_collectives(chakra *c, lh_error *err)
{
    const lh_trace *t = c->trace;
    uint32_t *last = new_indices(c->mem, t->n_devices);
    c->collectives_of = new_indices(c->mem, t->n_runs);
    c->next_collective = new_indices(c->mem, t->n_collectives);
    c->collective_before = new_indices(c->mem, t->n_collectives);
    if (!last || !c->collectives_of || !c->next_collective ||
        !c->collective_before)
        return lhi_fail_nomem(err);
    for (uint32_t k = 0; k < t->n_collectives; k++) {
        const lh_trace_collective *of = &t->collectives[k];
        const uint32_t run = find_gather_consumer(c, of);
        c->collective_before[k] = last[of->device];
        last[of->device] = k;
        if (run == LH_NONE)
            continue;
        c->next_collective[k] = c->collectives_of[run];
        c->collectives_of[run] = k;
    }
    return LH_OK;
}

/* A message in its link's order. */
typedef struct departure {
    uint32_t link, from, message;
    int64_t depart_ns;
} departure;

/* Compares departures of messages by link, sender, time and message number, for
 * qsort(). */
static int compare_departures(const void *a, const void *b)
{
    const departure *x = a, *y = b;
    if (x->link != y->link)
        return x->link < y->link ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->depart_ns != y->depart_ns)
        return x->depart_ns < y->depart_ns ? -1 : 1;
    return (x->message > y->message) - (x->message < y->message);
}

/* Records for each message the same sender's previous message on the same link,
 * which its send waits for. */
static lh_status order_sends(chakra *c, lh_error *err)
{
    const lh_trace *t = c->trace;
    departure *all = LHI_NEW(c->mem, departure, (size_t)t->n_messages + 1);
    c->send_before = new_indices(c->mem, t->n_messages);
    if (!all || !c->send_before)
        return lhi_fail_nomem(err);
    for (uint32_t m = 0; m < t->n_messages; m++)
        all[m] = (departure){t->messages[m].link, t->messages[m].from, m,
                             t->messages[m].depart_ns};
    qsort(all, t->n_messages, sizeof *all, compare_departures);
    for (uint32_t i = 1; i < t->n_messages; i++)
        if (all[i].link == all[i - 1].link && all[i].from == all[i - 1].from)
            c->send_before[all[i].message] = all[i - 1].message;
    return LH_OK;
}

/* Records for each message the runs (passes) that produce and consume it, and
 * for each run the messages that it consumes. */
static lh_status connect_messages(chakra *c, lh_error *err)
{
    const lh_trace *t = c->trace;
    lhi_run_index_entry *index = lhi_run_index_build(t->runs, t->n_runs);
    c->producers = new_indices(c->mem, t->n_messages);
    c->consumers = new_indices(c->mem, t->n_messages);
    c->messages_of = new_indices(c->mem, t->n_runs);
    c->next_message = new_indices(c->mem, t->n_messages);
    if (!index || !c->producers || !c->consumers || !c->messages_of ||
        !c->next_message) {
        free(index);
        return lhi_fail_nomem(err);
    }
    for (uint32_t m = 0; m < t->n_messages; m++) {
        const lh_trace_message *message = &t->messages[m];
        const uint32_t run =
            lhi_run_index_find(index, t->n_runs, &message->consumer);
        c->producers[m] =
            lhi_run_index_find(index, t->n_runs, &message->producer);
        c->consumers[m] = run;
        if (run == LH_NONE)
            continue;
        c->next_message[m] = c->messages_of[run];
        c->messages_of[run] = m;
    }
    free(index);
    return LH_OK;
}

/* Finds the runs (executed passes) of each device, and all dependencies between
 * runs, messages and collectives, which become edges of the trace. */
static lh_status connect_nodes(chakra *c, lh_error *err)
{
    const lh_trace *t = c->trace;
    c->first_run = LHI_NEW(c->mem, uint32_t, (size_t)t->n_devices + 1);
    c->nodes = LHI_NEW(c->mem, node,
                       (size_t)t->n_runs + 2 * (size_t)t->n_messages +
                           t->n_collectives + 1);
    if (!c->first_run || !c->nodes)
        return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < t->n_runs; r++)
        c->first_run[t->runs[r].device + 1]++;
    for (uint32_t d = 0; d < t->n_devices; d++)
        c->first_run[d + 1] += c->first_run[d];
    LHI_TRY(connect_messages(c, err));
    LHI_TRY(order_sends(c, err));
    return connect_collectives(c, err);
}

/* --- sizes ---------------------------------------------------------------- */

/* Determines the message size in bytes and, per chunk, the bytes per ns of
 * gathers and reductions, from the plan's cost. Without a plan, sizes are one
 * byte per ns. */
static lh_status find_sizes(chakra *c, lh_error *err)
{
    const uint32_t n = lh_pipeline_n_chunks(c->pipeline);
    c->bytes_per_ns = LHI_NEW(c->mem, double, 2 * (size_t)n + 1);
    if (!c->bytes_per_ns)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < 2 * n; i++)
        c->bytes_per_ns[i] = 1;
    if (!c->plan)
        return LH_OK;
    if (c->plan->best.placement == LH_PLACEMENT_BD)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Chakra traces do not support plans with two "
                        "directions (placement bd); plan with "
                        "layout.framework: longhaul");
    const lhi_config config = lhi_config_from_choice(&c->plan->best);
    const lh_job job = lhi_config_job(c->plan->job, &config);
    const double gpus = lhi_group_size(&config.layout);
    lhi_layout_placement places;
    c->message_bytes = lhi_cost_message_bytes(&job, &config.layout);
    LHI_TRY(lhi_layout_place(&job, &config.layout, c->mem, &places, err));
    for (uint32_t i = 0; i < n; i++) {
        const lh_chunk *chunk = lh_pipeline_chunk(c->pipeline, i);
        const lh_cost_layer_range slice =
            lhi_config_slice(&job, &config, &places.stages[chunk->device], i);
        lh_cost cost;
        LHI_TRY(lh_cost_chunk(&job, &config.layout, &slice, NULL, &cost, err));
        if (chunk->all_gather_ns)
            c->bytes_per_ns[2 * i] =
                gpus * (double)cost.gather_bytes / (double)chunk->all_gather_ns;
        if (chunk->reduce_scatter_ns)
            c->bytes_per_ns[2 * i + 1] = gpus * (double)cost.reduce_bytes /
                                         (double)chunk->reduce_scatter_ns;
    }
    return LH_OK;
}

/* Returns a message's bytes: the plan's or, without a plan, one per ns of its
 * transfer. */
static uint64_t size_of_message(const chakra *c, const lh_trace_message *m)
{
    return (uint64_t)(c->message_bytes ? c->message_bytes
                                       : m->sent_ns - m->depart_ns);
}

/* --- encoding ------------------------------------------------------------- */

/* Begins a trace node in the buffer c->one: its id, name and type; end_node()
 * completes it and appends it to the file. */
static void begin_node(chakra *c, uint64_t id, const char *name, uint32_t type)
{
    c->one.len = 0;
    put_number(&c->one, LHI_CHAKRA_ID, id);
    put_string(&c->one, LHI_CHAKRA_NAME, name);
    put_number(&c->one, LHI_CHAKRA_TYPE, type);
}

/* Completes the trace node in c->one with its start and duration, in the
 * schema's microseconds and exactly in ns, and appends it to the rank's file.
 */
static void end_node(chakra *c, int64_t start_ns, int64_t end_ns)
{
    lhi_text *one = &c->one;
    put_number(one, LHI_CHAKRA_START, to_micros(start_ns));
    put_number(one, LHI_CHAKRA_DURATION,
               to_micros(end_ns) - to_micros(start_ns));
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "is_cpu_op",
                  LHI_CHAKRA_ATTRIBUTE_BOOL, 0);
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "start_ns",
                  LHI_CHAKRA_ATTRIBUTE_UINT64, (uint64_t)start_ns);
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "duration_ns",
                  LHI_CHAKRA_ATTRIBUTE_UINT64, (uint64_t)(end_ns - start_ns));
    put_varint(&c->file, one->len);
    lhi_text_add(&c->file, one->data, one->len);
    c->file.failed = c->file.failed || one->failed;
}

/* Makes the current trace node depend on the receives of all messages that pass
 * number `run` of the trace consumes. */
static void put_messages(chakra *c, uint32_t run)
{
    for (uint32_t m = c->messages_of[run]; m != LH_NONE; m = c->next_message[m])
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_receive(c, m));
}

/* Adds the trace node of a pass, run number `r`. It depends on the previous
 * pass and on the messages and gathered parameters that it needs. */
static void put_run(chakra *c, uint32_t r)
{
    const lh_trace_run *run = &c->trace->runs[r];
    char name[LH_PASS_TEXT_SIZE];
    begin_node(c, id_of_run(r), lh_pass_format(&run->pass, name),
               LHI_CHAKRA_COMPUTE);
    if (r > c->first_run[run->device])
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_run(r - 1));
    put_messages(c, r);
    for (uint32_t k = c->collectives_of[r]; k != LH_NONE;
         k = c->next_collective[k])
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_collective(c, k));
    end_node(c, run->start_ns, run->end_ns);
}

/* Adds the size, the peer's rank in replica `replica` and message `m`'s
 * tag to the current trace node. */
static void put_peers(chakra *c, uint32_t m, uint32_t replica)
{
    const lh_trace_message *message = &c->trace->messages[m];
    lhi_text *one = &c->one;
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "comm_size",
                  LHI_CHAKRA_ATTRIBUTE_INT64, size_of_message(c, message));
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "comm_src",
                  LHI_CHAKRA_ATTRIBUTE_INT32,
                  rank_of(c, message->from, replica));
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "comm_dst",
                  LHI_CHAKRA_ATTRIBUTE_INT32, rank_of(c, message->to, replica));
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "comm_tag",
                  LHI_CHAKRA_ATTRIBUTE_INT32, m);
}

/* Adds the trace node that sends message `m` in replica `replica`. It depends
 * on the pass that produces the message, and on the previous message on the
 * link. */
static void put_send(chakra *c, uint32_t m, uint32_t replica)
{
    const lh_trace_message *message = &c->trace->messages[m];
    char name[LH_PASS_TEXT_SIZE + 8], pass[LH_PASS_TEXT_SIZE];
    snprintf(name, sizeof name, "SEND_%s",
             lh_pass_format(&message->producer, pass));
    begin_node(c, id_of_send(c, m), name, LHI_CHAKRA_SEND);
    if (c->send_before[m] != LH_NONE)
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_send(c, c->send_before[m]));
    if (c->producers[m] != LH_NONE)
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_run(c->producers[m]));
    put_peers(c, m, replica);
    end_node(c, message->depart_ns, message->sent_ns);
}

/* Adds the trace node that receives message `m` in replica `replica`. A
 * rendezvous receive (posted late) depends on the pass before its consumer. */
static void put_receive(chakra *c, uint32_t m, uint32_t replica)
{
    const lh_trace_message *message = &c->trace->messages[m];
    const uint32_t run = c->consumers[m];
    char name[LH_PASS_TEXT_SIZE + 8], pass[LH_PASS_TEXT_SIZE];
    snprintf(name, sizeof name, "RECV_%s",
             lh_pass_format(&message->producer, pass));
    begin_node(c, id_of_receive(c, m), name, LHI_CHAKRA_RECEIVE);
    if (lh_pipeline_receives(c->pipeline) != LH_RECEIVES_EARLY &&
        run != LH_NONE && run > c->first_run[message->to])
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_run(run - 1));
    put_peers(c, m, replica);
    end_node(c, message->depart_ns, message->arrive_ns);
}

/* Adds the trace node of collective `k` over a stage's replicas, with its bytes
 * rounded to the nearest. It depends on the collective before it and on the
 * pass that launches it. */
static void put_collective(chakra *c, uint32_t k)
{
    const lh_trace_collective *of = &c->trace->collectives[k];
    const uint32_t next = run_from(c, of->device, of->ready_ns);
    const double rate = c->bytes_per_ns[2 * of->chunk + of->is_reduce_scatter];
    lhi_text *one = &c->one;
    char name[64], group[16];
    uint32_t before = next;
    snprintf(name, sizeof name, "%s_%" PRIu32,
             of->is_reduce_scatter ? "REDUCE_SCATTER" : "ALL_GATHER",
             of->chunk);
    snprintf(group, sizeof group, "%" PRIu32, of->device + 1);
    begin_node(c, id_of_collective(c, k), name, LHI_CHAKRA_COLLECTIVE);
    if (c->collective_before[k] != LH_NONE)
        put_number(one, LHI_CHAKRA_CONTROL,
                   id_of_collective(c, c->collective_before[k]));
    while (before > c->first_run[of->device] &&
           c->trace->runs[before - 1].end_ns > of->ready_ns)
        before--;
    if (before > c->first_run[of->device])
        put_number(one, LHI_CHAKRA_DATA, id_of_run(before - 1));
    if (next < c->first_run[of->device + 1] &&
        c->trace->runs[next].start_ns == of->ready_ns)
        put_messages(c, next);
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "comm_type",
                  LHI_CHAKRA_ATTRIBUTE_INT64,
                  of->is_reduce_scatter ? LHI_CHAKRA_REDUCE_SCATTER
                                        : LHI_CHAKRA_ALL_GATHER);
    put_attribute(
        one, LHI_CHAKRA_ATTRIBUTE, "comm_size", LHI_CHAKRA_ATTRIBUTE_INT64,
        (uint64_t)(rate * (double)(of->sent_ns - of->depart_ns) + 0.5));
    put_text_attribute(one, LHI_CHAKRA_ATTRIBUTE, "pg_name", group);
    put_attribute(one, LHI_CHAKRA_ATTRIBUTE, "occupied_ns",
                  LHI_CHAKRA_ATTRIBUTE_UINT64,
                  (uint64_t)(of->sent_ns - of->depart_ns));
    end_node(c, of->depart_ns, of->arrive_ns);
}

/* Adds the trace node of the plan's optimizer step and overhead on a device,
 * after everything else. */
static void put_step(chakra *c, uint32_t device)
{
    const lh_choice *best = &c->plan->best;
    const uint32_t runs = c->first_run[device + 1];
    const int64_t step_ns = best->iteration_ns - best->makespan_ns;
    int64_t start_ns = 0;
    begin_node(c, id_of_step(c), "OPTIMIZER", LHI_CHAKRA_COMPUTE);
    if (runs > c->first_run[device]) {
        put_number(&c->one, LHI_CHAKRA_DATA, id_of_run(runs - 1));
        start_ns = c->trace->runs[runs - 1].end_ns;
    }
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        if (c->nodes[i].kind != COLLECTIVE)
            continue;
        const int64_t end_ns =
            c->trace->collectives[c->nodes[i].index].arrive_ns;
        put_number(&c->one, LHI_CHAKRA_DATA, c->nodes[i].id);
        start_ns = end_ns > start_ns ? end_ns : start_ns;
    }
    if (step_ns > 0)
        end_node(c, start_ns, start_ns + step_ns);
}

/* Adds the metadata message with which the trace file of device `device` in
 * replica `replica` begins: schema version, rank and makespan. */
static void put_metadata(chakra *c, uint32_t device, uint32_t replica)
{
    lhi_text *one = &c->one;
    one->len = 0;
    put_string(one, LHI_CHAKRA_METADATA_VERSION, "0.0.4");
    put_text_attribute(one, LHI_CHAKRA_METADATA_ATTRIBUTE, "source",
                       "longhaul");
    put_attribute(one, LHI_CHAKRA_METADATA_ATTRIBUTE, "rank",
                  LHI_CHAKRA_ATTRIBUTE_INT32, rank_of(c, device, replica));
    put_attribute(one, LHI_CHAKRA_METADATA_ATTRIBUTE, "makespan_ns",
                  LHI_CHAKRA_ATTRIBUTE_UINT64, (uint64_t)c->trace->makespan_ns);
    put_varint(&c->file, one->len);
    lhi_text_add(&c->file, one->data, one->len);
}

/* Encodes the trace file of one rank, device `device` in replica `replica`, in
 * c->file. */
static void put_rank(chakra *c, uint32_t device, uint32_t replica)
{
    c->file.len = 0;
    put_metadata(c, device, replica);
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const uint32_t index = c->nodes[i].index;
        switch (c->nodes[i].kind) {
        case RUN:
            put_run(c, index);
            break;
        case SEND:
            put_send(c, index, replica);
            break;
        case RECEIVE:
            put_receive(c, index, replica);
            break;
        case COLLECTIVE:
            put_collective(c, index);
            break;
        }
    }
    if (c->plan)
        put_step(c, device);
}

/* --- files ---------------------------------------------------------------- */

/* Writes groups.json by the callback `write`: the ranks of each stage's process
 * group, under the names that collectives have, as ASTRA-sim reads them. */
static lh_status write_groups(chakra *c, lh_chakra_writer write, void *context,
                              lh_error *err)
{
    lhi_text *out = &c->file;
    out->len = 0;
    lhi_text_puts(out, "{");
    for (uint32_t d = 0; d < c->trace->n_devices; d++) {
        lhi_text_printf(out, "%s\n  \"%" PRIu32 "\": [", d ? "," : "", d + 1);
        for (uint32_t r = 0; r < c->replicas; r++)
            lhi_text_printf(out, "%s%" PRIu32, r ? ", " : "", rank_of(c, d, r));
        lhi_text_puts(out, "]");
    }
    lhi_text_puts(out, "\n}\n");
    return out->failed
               ? lhi_fail_nomem(err)
               : write(context, "groups.json", out->data, out->len, err);
}

/* Writes the trace files of all ranks and the process groups, each by the
 * callback `write`. */
static lh_status write_files(chakra *c, lh_chakra_writer write, void *context,
                             lh_error *err)
{
    char suffix[24];
    for (uint32_t d = 0; d < c->trace->n_devices; d++) {
        list_nodes(c, d);
        for (uint32_t r = 0; r < c->replicas; r++) {
            put_rank(c, d, r);
            if (c->file.failed || c->one.failed)
                return lhi_fail_nomem(err);
            snprintf(suffix, sizeof suffix, "%" PRIu32 ".et", rank_of(c, d, r));
            LHI_TRY(write(context, suffix, c->file.data, c->file.len, err));
        }
    }
    return write_groups(c, write, context, err);
}

/* Converts a pipeline's predicted trace, with the sizes of `plan` unless NULL,
 * to Chakra's files; passes each one to the callback `write`. */
static lh_status export_trace(const lh_pipeline *pipeline, const lh_plan *plan,
                              const lh_trace *trace, lh_chakra_writer write,
                              void *context, lh_error *err)
{
    chakra c = {.pipeline = pipeline,
                .plan = plan,
                .trace = trace,
                .mem = lhi_arena_make(0),
                .replicas = plan ? plan->best.layout.data : 1};
    if (!c.mem)
        return lhi_fail_nomem(err);
    lh_status status = connect_nodes(&c, err);
    if (status == LH_OK)
        status = find_sizes(&c, err);
    if (status == LH_OK)
        status = write_files(&c, write, context, err);
    lhi_text_fini(&c.file);
    lhi_text_fini(&c.one);
    lhi_arena_free(c.mem);
    return status;
}

lh_status lh_export_chakra(const lh_pipeline *pipeline,
                           const lh_schedule *schedule, const lh_plan *plan,
                           lh_chakra_writer write, void *context, lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_trace *trace = NULL;
    if (plan && plan->best.layout.group_micro_batches)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the messages of unequal microbatches have no single "
                        "size; plan with one micro_batch");
    if (plan && plan->best.layout.site_tensors)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a stage has no single number of ranks with different "
                        "tensor degrees per datacenter; plan with one tensor");
    lh_status status = lh_simulate(pipeline, schedule, NULL, &timeline, err);
    if (status == LH_OK)
        status = lh_trace_make(pipeline, timeline, NULL, &trace, err);
    if (status == LH_OK)
        status = export_trace(pipeline, plan, trace, write, context, err);
    lh_trace_free(trace);
    lh_timeline_free(timeline);
    return status;
}
