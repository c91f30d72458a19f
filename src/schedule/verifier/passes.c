/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that every pass runs exactly once, on its device, after its
 * prerequisites there. Passes are sorted, so the cost depends on the schedule's
 * size even if the pipeline has far more passes. */
#include "schedule/pipeline/accessors.h"
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define TEXT(judge, node, buffer) lh_pass_format(&(judge)->passes[node], buffer)

/* Compares two numbers; returns -1, 0 or 1 as a < b, a == b or a > b. */
static int compare_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* Compares passes by chunk, microbatch, kind and part; returns -1, 0 or 1. */
static int compare_passes(const lh_pass *a, const lh_pass *b)
{
    int order = compare_u32(a->chunk, b->chunk);
    if (!order)
        order = compare_u32(a->microbatch, b->microbatch);
    if (!order)
        order = compare_u32(a->kind, b->kind);
    if (!order)
        order = compare_u32(a->part, b->part);
    return order;
}

/* Compares passes by chunk, microbatch, kind and part, then by their index in
 * judge->passes, for qsort(). */
static int compare_keys(const void *a, const void *b)
{
    const lhi_verify_node *x = a, *y = b;
    int order = compare_passes(&x->pass, &y->pass);
    return order ? order : compare_u32(x->node, y->node);
}

/* Returns the index, in judge->sorted, of the first pass that does not come
 * before `pass` by chunk, microbatch, kind and part. */
static uint32_t find_lower_bound(const lhi_verifier *judge, const lh_pass *pass)
{
    uint32_t lo = 0, hi = judge->n_sorted;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (compare_passes(&judge->sorted[mid].pass, pass) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t lhi_verify_find_pass(const lhi_verifier *judge, const lh_pass *pass)
{
    uint32_t at = find_lower_bound(judge, pass);
    if (at == judge->n_sorted ||
        compare_passes(&judge->sorted[at].pass, pass) != 0)
        return LH_NONE;
    return judge->sorted[at].node;
}

uint32_t lhi_verify_find_gradient(const lhi_verifier *judge, uint32_t chunk,
                                  uint32_t microbatch)
{
    lh_pass pass = {.chunk = chunk, .microbatch = microbatch, .kind = LH_D};
    uint32_t node = lhi_verify_find_pass(judge, &pass);
    if (node != LH_NONE)
        return node;
    pass.kind = LH_B;
    return lhi_verify_find_pass(judge, &pass);
}

/* Checks whether the pass with index `node` in judge->passes can belong to this
 * pipeline: chunk, microbatch, device, kind and parts. Adds violations
 * otherwise. */
static bool is_valid_pass(lhi_verifier *judge, uint32_t node)
{
    const lh_pass *pass = &judge->passes[node];
    uint32_t row = judge->rows[node], at = lhi_verify_get_cell(judge, node);
    char text[LH_PASS_TEXT_SIZE];
    lh_pass_format(pass, text);
    if (pass->chunk >= judge->n_chunks) {
        lhi_verify_add_violation(
            judge,
            "device %" PRIu32 ", cell %" PRIu32 ": %s is of chunk "
            "%" PRIu32 ", but there are %" PRIu32 ", counted from 0",
            row, at, text, pass->chunk, judge->n_chunks);
        return false;
    }
    if (pass->microbatch >= judge->n_microbatches) {
        lhi_verify_add_violation(
            judge,
            "device %" PRIu32 ", cell %" PRIu32 ": %s is of "
            "microbatch %" PRIu32 ", but there are %" PRIu32 ", counted from 0",
            row, at, text, pass->microbatch, judge->n_microbatches);
        return false;
    }
    uint32_t home = lh_pipeline_chunk(judge->pipeline, pass->chunk)->device;
    if (home != row)
        lhi_verify_add_violation(judge,
                                 "device %" PRIu32 ", cell %" PRIu32
                                 ": %s belongs on device %" PRIu32,
                                 row, at, text, home);
    if (lhi_pipeline_is_joint(judge->pipeline) &&
        (pass->kind == LH_D || pass->kind == LH_W)) {
        lhi_verify_add_violation(
            judge,
            "device %" PRIu32 ", cell %" PRIu32
            ": %s, but this pipeline's backward is joint: B only",
            row, at, text);
        return false;
    }
    if (pass->kind == LH_W &&
        (pass->n_parts == 0 || pass->part >= pass->n_parts)) {
        lhi_verify_add_violation(judge,
                                 "device %" PRIu32 ", cell %" PRIu32
                                 ": %s is not a part of a "
                                 "W",
                                 row, at, text);
        return false;
    }
    return true;
}

/* Lists the valid passes in judge->sorted, with their indices, sorted by chunk,
 * microbatch, kind and part, so that missing and repeated passes can be found.
 * */
static lh_status sort_passes(lhi_verifier *judge, lh_error *err)
{
    uint32_t total = judge->first[judge->n_rows];
    judge->sorted = LHI_NEW(judge->mem, lhi_verify_node, total);
    if (!judge->sorted)
        return lhi_fail_nomem(err);
    for (uint32_t node = 0; node < total; node++)
        if (is_valid_pass(judge, node))
            judge->sorted[judge->n_sorted++] =
                (lhi_verify_node){judge->passes[node], node};
    if (judge->n_sorted)
        qsort(judge->sorted, judge->n_sorted, sizeof *judge->sorted,
              compare_keys);
    return LH_OK;
}

/* Adds the violation that `pass` is missing from its device's row. */
static void add_missing(lhi_verifier *judge, const lh_pass *pass)
{
    char text[LH_PASS_TEXT_SIZE];
    lhi_verify_add_violation(
        judge, "device %" PRIu32 ": %s is missing",
        lh_pipeline_chunk(judge->pipeline, pass->chunk)->device,
        lh_pass_format(pass, text));
}

/* Adds the violation that the backward of the chunk and microbatch of `pass` is
 * missing: B, or both I (D) and W. */
static void add_missing_backward(lhi_verifier *judge, const lh_pass *pass)
{
    uint32_t device = lh_pipeline_chunk(judge->pipeline, pass->chunk)->device;
    if (lhi_pipeline_is_joint(judge->pipeline))
        lhi_verify_add_violation(
            judge, "device %" PRIu32 ": %" PRIu32 "B%" PRIu32 " is missing",
            device, pass->chunk, pass->microbatch);
    else
        lhi_verify_add_violation(judge,
                                 "device %" PRIu32 ": %" PRIu32 "I%" PRIu32
                                 " and %" PRIu32 "W%" PRIu32 " are missing",
                                 device, pass->chunk, pass->microbatch,
                                 pass->chunk, pass->microbatch);
}

/* Adds a violation unless the pass with index `needed` in judge->passes comes
 * before that with index `node` in the device's order. */
static void check_after(lhi_verifier *judge, uint32_t node, uint32_t needed)
{
    char text[LH_PASS_TEXT_SIZE], before[LH_PASS_TEXT_SIZE];
    if (node == LH_NONE || needed == LH_NONE || needed < node ||
        judge->rows[node] != judge->rows[needed])
        return;
    lhi_verify_add_violation(
        judge,
        "device %" PRIu32 ", cell %" PRIu32
        ": %s comes before %s (cell %" PRIu32 "), which it needs",
        judge->rows[node], lhi_verify_get_cell(judge, node),
        TEXT(judge, node, text), TEXT(judge, needed, before),
        lhi_verify_get_cell(judge, needed));
}

/* Adds the violation that the pass with index `node` in judge->passes repeats
 * the one with index `earlier`. */
static void add_duplicate(lhi_verifier *judge, uint32_t node, uint32_t earlier)
{
    char text[LH_PASS_TEXT_SIZE];
    lhi_verify_add_violation(
        judge,
        "device %" PRIu32 ", cell %" PRIu32 ": %s again; it is cell %" PRIu32
        " of device %" PRIu32 " already",
        judge->rows[node], lhi_verify_get_cell(judge, node),
        TEXT(judge, node, text), lhi_verify_get_cell(judge, earlier),
        judge->rows[earlier]);
}

/* Checks the W passes keys[0..n-1] of one chunk and microbatch: all parts of
 * one division, each once and in order. They must come after the pass with
 * index `d` in judge->passes, their D. */
static void check_weights(lhi_verifier *judge, const lhi_verify_node *keys,
                          uint32_t n, uint32_t d)
{
    const lh_pass *first = &keys[0].pass;
    uint32_t expected = 0;
    for (uint32_t i = 0; i < n; i++) {
        const lh_pass *pass = &keys[i].pass;
        check_after(judge, keys[i].node, d);
        if (pass->n_parts != first->n_parts) {
            char text[LH_PASS_TEXT_SIZE], other[LH_PASS_TEXT_SIZE];
            lhi_verify_add_violation(judge,
                                     "device %" PRIu32 ", cell %" PRIu32
                                     ": %s, but %s cuts this W into %u parts",
                                     judge->rows[keys[i].node],
                                     lhi_verify_get_cell(judge, keys[i].node),
                                     lh_pass_format(pass, text),
                                     lh_pass_format(first, other),
                                     (unsigned)first->n_parts);
            return;
        }
        if (i > 0 && pass->part == keys[i - 1].pass.part) {
            add_duplicate(judge, keys[i].node, keys[i - 1].node);
            continue;
        }
        if (i > 0) /* parts run in order */
            check_after(judge, keys[i].node, keys[i - 1].node);
        for (; expected < pass->part; expected++) {
            lh_pass gone = *first;
            gone.part = (uint16_t)expected;
            add_missing(judge, &gone);
        }
        expected = pass->part + 1u;
    }
    for (; expected < first->n_parts; expected++) {
        lh_pass gone = *first;
        gone.part = (uint16_t)expected;
        add_missing(judge, &gone);
    }
}

/* Checks keys[0..n-1], equal passes that should occur once: adds violations for
 * repetitions. Returns the index of the first one in judge->passes; LH_NONE: n
 * is 0. */
static uint32_t check_single(lhi_verifier *judge, const lhi_verify_node *keys,
                             uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        add_duplicate(judge, keys[i].node, keys[0].node);
    return n ? keys[0].node : LH_NONE;
}

/* Checks keys[0..n-1], the passes of one chunk and microbatch: each kind must
 * occur once, in valid order. */
static void check_group(lhi_verifier *judge, const lhi_verify_node *keys,
                        uint32_t n)
{
    uint32_t begin[5] = {0};
    for (unsigned kind = LH_F; kind <= LH_B; kind++) {
        uint32_t end = begin[kind];
        while (end < n && keys[end].pass.kind == kind)
            end++;
        begin[kind + 1] = end;
    }
    uint32_t n_w = begin[LH_W + 1] - begin[LH_W];
    uint32_t f = check_single(judge, keys, begin[LH_F + 1]);
    uint32_t d =
        check_single(judge, keys + begin[LH_D], begin[LH_W] - begin[LH_D]);
    uint32_t b = check_single(judge, keys + begin[LH_B], n - begin[LH_B]);
    lh_pass pass = {.chunk = keys[0].pass.chunk,
                    .microbatch = keys[0].pass.microbatch,
                    .n_parts = 1,
                    .kind = LH_F};
    if (f == LH_NONE)
        add_missing(judge, &pass);
    check_after(judge, d, f);
    check_after(judge, b, f);
    if (b != LH_NONE) {
        for (uint32_t i = begin[LH_D]; i < begin[LH_W + 1]; i++) {
            char text[LH_PASS_TEXT_SIZE], whole[LH_PASS_TEXT_SIZE];
            lhi_verify_add_violation(judge,
                                     "device %" PRIu32 ", cell %" PRIu32
                                     ": %s, but %s does that already",
                                     judge->rows[keys[i].node],
                                     lhi_verify_get_cell(judge, keys[i].node),
                                     TEXT(judge, keys[i].node, text),
                                     TEXT(judge, b, whole));
        }
        return;
    }
    if (d == LH_NONE && n_w == 0) {
        add_missing_backward(judge, &pass);
        return;
    }
    if (d == LH_NONE) {
        pass.kind = LH_D;
        add_missing(judge, &pass);
    }
    if (n_w) {
        check_weights(judge, keys + begin[LH_W], n_w, d);
    } else {
        pass.kind = LH_W;
        add_missing(judge, &pass);
    }
}

/* Adds violations for the missing passes of all chunk-microbatch pairs with
 * numbers from..to-1: number i is microbatch i % n on chunk i / n, for n
 * microbatches. */
static void add_missing_range(lhi_verifier *judge, uint64_t from, uint64_t to)
{
    for (; from < to && !lhi_verify_is_verdict_full(judge); from++) {
        lh_pass pass = {
            .chunk = (uint32_t)(from / judge->n_microbatches),
            .microbatch = (uint32_t)(from % judge->n_microbatches),
            .n_parts = 1,
            .kind = LH_F,
        };
        add_missing(judge, &pass);
        add_missing_backward(judge, &pass);
    }
    lhi_verify_count_violations(judge, 2 * (to - from));
}

/* Checks that the F or D with index `node` in judge->passes comes after the
 * pass of another chunk that produces its input, if both are on one device. */
static void check_neighbours(lhi_verifier *judge, uint32_t node)
{
    const lh_pass *pass = &judge->passes[node];
    uint32_t to = pass->chunk, source;
    if (pass->kind == LH_F) {
        if (!lhi_verify_has_previous(judge, to) ||
            judge->forward[to - 1] != LHI_SAME_DEVICE)
            return;
        lh_pass before = *pass;
        before.chunk = to - 1;
        source = lhi_verify_find_pass(judge, &before);
    } else {
        if (pass->kind == LH_W || !lhi_verify_has_next(judge, to) ||
            judge->backward[to + 1] != LHI_SAME_DEVICE)
            return;
        source = lhi_verify_find_gradient(judge, to + 1, pass->microbatch);
    }
    check_after(judge, node, source);
}

bool lhi_verify_starts_pair(const lhi_verifier *judge, uint32_t node)
{
    const lh_pass *pass = &judge->passes[node];
    return pass->overlapped && pass->kind == LH_F &&
           lhi_pipeline_overlap_f_b(judge->pipeline) > 0;
}

/* Checks that the B of the overlapped pair whose F has index `node` in
 * judge->passes does not depend on that F. It does if both have the same
 * microbatch and direction. */
static void check_pair(lhi_verifier *judge, uint32_t node)
{
    if (!lhi_verify_starts_pair(judge, node))
        return;
    const lh_pass *f = &judge->passes[node], *b = f + 1;
    char text[LH_PASS_TEXT_SIZE], other[LH_PASS_TEXT_SIZE];
    if (f->microbatch != b->microbatch ||
        f->chunk / judge->path_length != b->chunk / judge->path_length)
        return;
    lhi_verify_add_violation(judge,
                             "device %" PRIu32 ", cell %" PRIu32
                             ": %s overlaps with %s, which needs its output",
                             judge->rows[node],
                             lhi_verify_get_cell(judge, node),
                             lh_pass_format(f, text), lh_pass_format(b, other));
}

/* Checks the order of a sequence's slices around the pass with index `node` in
 * judge->passes. An F must come after the previous slice's, and a D or B after
 * the next slice's. */
static void check_slices(lhi_verifier *judge, uint32_t node)
{
    const lh_pass *pass = &judge->passes[node];
    const uint32_t k = lhi_pipeline_n_slices(judge->pipeline);
    const uint32_t slice = pass->microbatch % k;
    lh_pass before = *pass;
    if (pass->kind == LH_F && slice > 0) {
        before.microbatch--;
        check_after(judge, node, lhi_verify_find_pass(judge, &before));
    } else if (pass->kind != LH_F && pass->kind != LH_W && slice + 1 < k) {
        check_after(
            judge, node,
            lhi_verify_find_gradient(judge, pass->chunk, pass->microbatch + 1));
    }
}

lh_status lhi_verify_check_passes(lhi_verifier *judge, lh_error *err)
{
    LHI_TRY(sort_passes(judge, err));
    uint64_t next = 0; /* next expected chunk * n + microbatch */
    uint32_t i = 0;
    while (i < judge->n_sorted) {
        const lh_pass *pass = &judge->sorted[i].pass;
        uint64_t here =
            (uint64_t)pass->chunk * judge->n_microbatches + pass->microbatch;
        uint32_t end = i + 1;
        while (end < judge->n_sorted &&
               judge->sorted[end].pass.chunk == pass->chunk &&
               judge->sorted[end].pass.microbatch == pass->microbatch)
            end++;
        add_missing_range(judge, next, here);
        check_group(judge, judge->sorted + i, end - i);
        next = here + 1;
        i = end;
    }
    add_missing_range(judge, next,
                      (uint64_t)judge->n_chunks * judge->n_microbatches);
    for (i = 0; i < judge->n_sorted; i++)
        check_neighbours(judge, judge->sorted[i].node);
    for (i = 0; i < judge->n_sorted; i++)
        check_pair(judge, judge->sorted[i].node);
    for (i = 0; i < judge->n_sorted; i++)
        check_slices(judge, judge->sorted[i].node);
    return LH_OK;
}

uint32_t lhi_verify_find_dp_pass(const lhi_verifier *judge,
                                 const lh_dp_pass *at)
{
    lh_pass forward = {at->chunk, at->microbatch, 0, 1, LH_F, false};
    return at->backward
               ? lhi_verify_find_gradient(judge, at->chunk, at->microbatch)
               : lhi_verify_find_pass(judge, &forward);
}

int64_t lhi_verify_compute_pair_ns(const lhi_verifier *judge, uint32_t node)
{
    const lh_pass *f = &judge->passes[node];
    const lh_chunk *a = lh_pipeline_chunk(judge->pipeline, f->chunk);
    const lh_chunk *b = lh_pipeline_chunk(judge->pipeline, f[1].chunk);
    double factor = lhi_pipeline_overlap_f_b(judge->pipeline);
    return llround((double)a->f_ns * factor) +
           llround((double)(b->d_ns + b->w_ns) * factor);
}

/* Scales a mean duration over a sequence's slices to the slice of a pass. */
static int64_t scale_to_slice(const lhi_verifier *judge, const lh_pass *pass,
                              int64_t ns)
{
    const uint32_t k = lhi_pipeline_n_slices(judge->pipeline);
    const double attention = lhi_pipeline_slice_attention(judge->pipeline);
    const double seen = (2.0 * (pass->microbatch % k) + 1) / k;
    return k > 1 ? llround((double)ns * (1 + attention * (seen - 1))) : ns;
}

int64_t lhi_verify_get_duration(const lhi_verifier *judge, const lh_pass *pass)
{
    const lh_chunk *chunk = lh_pipeline_chunk(judge->pipeline, pass->chunk);
    const int64_t d_ns = scale_to_slice(judge, pass, chunk->d_ns);
    const int64_t w_ns = scale_to_slice(judge, pass, chunk->w_ns);
    switch (pass->kind) {
    case LH_F:
        return scale_to_slice(judge, pass, chunk->f_ns);
    case LH_D:
        return d_ns;
    case LH_B:
        return d_ns + w_ns;
    default:
        return lhi_verify_compute_share(w_ns, pass);
    }
}
