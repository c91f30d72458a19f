/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/op_trace.h"

#include "base/input_limits.h"
#include "base/text.h"

#include <longhaul/experimental/trace.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Appends the whole decompressed file to `text`. LH_EINPUT: it exceeds the size
 * limit for traces. */
static lh_status read_all(lhi_gzip_stream *zip, const char *name,
                          lhi_text *text, lh_error *err)
{
    char *bytes = malloc(LHI_GZIP_STREAM_BYTES);
    size_t n = 1;
    lh_status status = bytes ? LH_OK : lhi_fail_nomem(err);
    while (status == LH_OK && n) {
        status =
            lhi_gzip_stream_read(zip, bytes, LHI_GZIP_STREAM_BYTES, &n, err);
        if (status == LH_OK)
            lhi_text_add(text, bytes, n);
        if (status == LH_OK)
            status =
                lhi_input_check_size(text->len, name, LHI_INPUT_TRACE, err);
    }
    free(bytes);
    return status;
}

/* --- rows ----------------------------------------------------------------- */

/* Conversion inputs. */
typedef struct conversion {
    const lh_trace *trace;
    const char *name;
    uint64_t step;
    lhi_rows *rows;
} conversion;

/* Adds one `op` operation on a trace's device to the recording; the device
 * becomes the stage number, in a single replica. `order`: its index among the
 * device's operations of that kind. */
static lh_status add_row(const conversion *c, lhi_op_type op, uint32_t device,
                         uint32_t order, uint32_t chunk, int32_t microbatch,
                         int64_t from_ns, int64_t to_ns, lh_error *err)
{
    lhi_op_row row = {.start_ns = from_ns,
                      .ns = to_ns - from_ns,
                      .rank = device,
                      .index = order,
                      .microbatch = microbatch,
                      .stage = (uint16_t)device,
                      .stage_chunk = -1,
                      .chunk = chunk == LH_NONE ? -1 : (int16_t)chunk,
                      .op = (uint8_t)op};
    lh_status status = lhi_rows_add(c->rows, c->step, &row, err);
    if (status == LH_EINPUT)
        lhi_fail_add_context(err, "%s", c->name);
    return status;
}

/* Adds an operation for each pass in the trace. */
static lh_status add_passes(const conversion *c, lh_error *err)
{
    static const lhi_op_type ops[] = {[LH_F] = LHI_OP_FORWARD,
                                      [LH_D] = LHI_OP_INPUT,
                                      [LH_W] = LHI_OP_WEIGHT,
                                      [LH_B] = LHI_OP_BACKWARD};
    for (uint32_t i = 0; i < c->trace->n_runs; i++) {
        const lh_trace_run *r = &c->trace->runs[i];
        LHI_TRY(add_row(c, ops[r->pass.kind], r->device, i, r->pass.chunk,
                        (int32_t)r->pass.microbatch, r->start_ns, r->end_ns,
                        err));
    }
    return LH_OK;
}

/* A pass's key with its run number, for lookup. */
typedef struct run_number {
    uint64_t pass; /* key: chunk, microbatch, forward or backward */
    uint32_t run;
} run_number;

/* Returns a sort key that packs a pass's chunk, microbatch and direction; D, W
 * and B share one key. */
static uint64_t make_pass_key(const lh_pass *p)
{
    return ((uint64_t)p->chunk << 40) | ((uint64_t)p->microbatch << 1) |
           (p->kind != LH_F);
}

/* Compares run numbers by pass key, for sorting and bsearch(). */
static int compare_passes(const void *a, const void *b)
{
    const run_number *x = a, *y = b;
    return (x->pass > y->pass) - (x->pass < y->pass);
}

/* Returns the run number stored for a pass, by binary search in n entries; 0 if
 * it is absent. */
static uint32_t find_run(const run_number *runs, uint32_t n,
                         const lh_pass *pass)
{
    run_number key = {.pass = make_pass_key(pass)};
    const run_number *found =
        bsearch(&key, runs, n, sizeof *runs, compare_passes);
    return found ? found->run : 0;
}

/* Adds the trace's messages as sends and receives, in their passes' order. */
static lh_status add_messages(const conversion *c, lh_error *err)
{
    const lh_trace *t = c->trace;
    run_number *runs = calloc((size_t)t->n_runs + 1, sizeof *runs);
    uint32_t n = 0;
    lh_status status = runs ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; runs && i < t->n_runs; i++)
        if (t->runs[i].pass.kind != LH_W)
            runs[n++] = (run_number){make_pass_key(&t->runs[i].pass), i};
    if (runs)
        qsort(runs, n, sizeof *runs, compare_passes);
    for (uint32_t i = 0; status == LH_OK && i < t->n_messages; i++) {
        const lh_trace_message *m = &t->messages[i];
        bool back = m->producer.kind != LH_F;
        status = add_row(c, back ? LHI_OP_BACKWARD_SEND : LHI_OP_FORWARD_SEND,
                         m->from, find_run(runs, n, &m->producer), LH_NONE, -1,
                         m->depart_ns, m->sent_ns, err);
        if (status == LH_OK)
            status =
                add_row(c, back ? LHI_OP_BACKWARD_RECV : LHI_OP_FORWARD_RECV,
                        m->to, find_run(runs, n, &m->consumer), LH_NONE, -1,
                        m->depart_ns, m->arrive_ns, err);
    }
    free(runs);
    return status;
}

/* Adds an operation for each data-parallel collective. LH_EUNSUPPORTED: a
 * collective is split into buckets. */
static lh_status add_collectives(const conversion *c, lh_error *err)
{
    for (uint32_t i = 0; i < c->trace->n_collectives; i++) {
        const lh_trace_collective *k = &c->trace->collectives[i];
        if (k->n_buckets)
            return lhi_fail(
                err, LH_EUNSUPPORTED,
                "%s: has data-parallel communication in buckets, in the middle "
                "of the iteration, which diagnose does not support",
                c->name);
        LHI_TRY(add_row(
            c, k->is_reduce_scatter ? LHI_OP_REDUCE_SCATTER : LHI_OP_ALL_GATHER,
            k->device, i, k->chunk, -1, k->depart_ns, k->arrive_ns, err));
    }
    return LH_OK;
}

/* Fails with LH_EUNSUPPORTED if the trace exceeds the diagnosis's limits on
 * devices, chunks or microbatches. */
static lh_status check_size(const lh_trace *t, const char *name, lh_error *err)
{
    bool fits = t->n_devices < LHI_MAX_STAGES_OR_REPLICAS;
    for (uint32_t i = 0; i < t->n_runs && fits; i++)
        fits = t->runs[i].pass.chunk < INT16_MAX &&
               t->runs[i].pass.microbatch < LH_MAX_MICROBATCHES;
    for (uint32_t i = 0; i < t->n_collectives && fits; i++)
        fits = t->collectives[i].chunk < INT16_MAX;
    return fits ? LH_OK
                : lhi_fail(err, LH_EUNSUPPORTED,
                           "%s: has more devices, chunks or microbatches than "
                           "diagnose supports",
                           name);
}

lh_status lhi_op_trace_read(lhi_gzip_stream *zip, const char *name,
                            uint64_t step, lhi_rows *rows, lh_error *err)
{
    lhi_text text = {0};
    lh_trace *trace = NULL;
    lh_status status = read_all(zip, name, &text, err);
    if (status == LH_OK && text.failed)
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lh_trace_parse(text.data, text.len, name, &trace, err);
    lhi_text_fini(&text);
    conversion c = {trace, name, step, rows};
    if (status == LH_OK)
        status = check_size(trace, name, err);
    if (status == LH_OK)
        status = add_passes(&c, err);
    if (status == LH_OK)
        status = add_messages(&c, err);
    if (status == LH_OK)
        status = add_collectives(&c, err);
    if (status == LH_OK && trace->n_runs)
        lhi_rows_mark_preposted(rows);
    lh_trace_free(trace);
    return status;
}
