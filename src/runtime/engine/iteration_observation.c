/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/iteration_observation.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

/* Producer of an input: the stage, and its pass's index. */
typedef struct producer {
    uint32_t stage, pass;
} producer;

/* Buffers for observed iterations. */
struct lhi_iteration_observation {
    const lh_pipeline *pipeline;
    uint32_t n_stages, n_copies;
    bool emulates;
    uint64_t *bytes;  /* messages into a chunk: F's, then D's or B's */
    producer *makers; /* per input */
    /* Per replica, the number of each. */
    size_t n_messages, n_passes, n_collectives;
    lh_observed_message *messages;
    lh_observed_pass *passes;
    lh_observed_collective *collectives;
    size_t message_room, pass_room, collective_room;
    /* Per replica and link, in the last iteration. */
    double *link_ns;
    uint32_t *n_on_link;
};

/* --- construction --- */

/* Stores in s->bytes the size of each chunk's input message from its neighbour,
 * forward and backward. */
static lh_status record_message_bytes(lhi_iteration_observation *s,
                                      const lhi_device *device, lh_error *err)
{
    uint32_t n = s->pipeline->n_chunks;
    s->bytes = calloc(2 * (size_t)n, sizeof *s->bytes);
    if (!s->bytes)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n; c++) {
        if (c > 0)
            s->bytes[c] = device->ops->message_bytes(device, c - 1, false);
        if (c + 1 < n)
            s->bytes[n + c] = device->ops->message_bytes(device, c + 1, true);
    }
    return LH_OK;
}

lh_status lhi_iteration_observation_make(const lhi_job *job,
                                         const lhi_device *device,
                                         lhi_iteration_observation **out,
                                         lh_error *err)
{
    lhi_iteration_observation *s = calloc(1, sizeof *s);
    if (!s)
        return lhi_fail_nomem(err);
    s->pipeline = job->pipeline;
    s->n_stages = job->exec->n_ranks;
    s->n_copies = lhi_grid_count_copies(&job->grid);
    s->emulates = job->emulates;
    s->makers = calloc(2 * (size_t)job->exec->n_half, sizeof *s->makers);
    const size_t n = (size_t)s->n_copies * s->pipeline->n_links + 1;
    s->link_ns = calloc(n, sizeof *s->link_ns);
    s->n_on_link = calloc(n, sizeof *s->n_on_link);
    lh_status status = s->makers && s->link_ns && s->n_on_link
                           ? record_message_bytes(s, device, err)
                           : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_iteration_observation_free(s);
        return status;
    }
    *out = s;
    return LH_OK;
}

void lhi_iteration_observation_free(lhi_iteration_observation *s)
{
    if (!s)
        return;
    free(s->bytes);
    free(s->makers);
    free(s->messages);
    free(s->passes);
    free(s->collectives);
    free(s->link_ns);
    free(s->n_on_link);
    free(s);
}

/* Enlarges an array to at least n entries of `size` bytes; returns its new
 * address. NULL: out of memory, `at` is unchanged. */
static void *grow_array(void *at, size_t *room, size_t n, size_t size)
{
    if (at && n <= *room)
        return at;
    void *more = realloc(at, (n + 1) * size);
    if (more)
        *room = n;
    return more;
}

/* Enlarges the arrays of observed messages, passes and collectives to n_passes
 * passes (and as many messages) and n_collectives collectives. */
static lh_status grow_arrays(lhi_iteration_observation *s, size_t n_passes,
                             size_t n_collectives, lh_error *err)
{
    size_t n = s->n_messages * s->n_copies;
    lh_observed_message *messages =
        grow_array(s->messages, &s->message_room, n, sizeof *messages);
    if (!messages)
        return lhi_fail_nomem(err);
    s->messages = messages;
    lh_observed_pass *passes =
        grow_array(s->passes, &s->pass_room, n_passes, sizeof *passes);
    if (!passes)
        return lhi_fail_nomem(err);
    s->passes = passes;
    lh_observed_collective *collectives =
        grow_array(s->collectives, &s->collective_room, n_collectives,
                   sizeof *collectives);
    if (!collectives)
        return lhi_fail_nomem(err);
    s->collectives = collectives;
    return LH_OK;
}

/* Returns the link over which a pass receives its input message from the
 * neighbouring chunk. */
static uint32_t find_input_link(const lhi_iteration_observation *s,
                                const lh_pass *pass)
{
    const lh_pipeline *p = s->pipeline;
    return pass->kind == LH_F ? p->forward[pass->chunk - 1].link
                              : p->backward[pass->chunk + 1].link;
}

/* Checks whether the pass receives its input as a message over a link of the
 * pipeline, so that the message's times can be observed. */
static bool uses_link(const lhi_iteration_observation *s,
                      const lhi_exec_pass *pass)
{
    return pass->input != LH_NONE && !pass->local_input &&
           find_input_link(s, &pass->pass) != LH_NONE;
}

/* Counts the messages, passes and collectives of an iteration, grows the arrays
 * for them, and records which pass produces each message. */
static lh_status count_all(lhi_iteration_observation *s, const lh_exec *x,
                           const lhi_rank_observation *parts, lh_error *err)
{
    size_t n_passes = 0, n_collectives = 0;
    s->n_messages = 0;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        n_passes += x->ranks[r].n_passes;
        n_collectives += parts[r].head.n_collectives;
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            s->n_messages += uses_link(s, pass);
            if (pass->output != LH_NONE)
                s->makers[pass->output] = (producer){r, i};
        }
    }
    return grow_arrays(s, n_passes, n_collectives, err);
}

/* --- messages --- */

/* Returns the later of two times, or the longer of two durations. */
static int64_t get_later_time(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Fills in the observed message *to from the record `row` of the pass that
 * consumes it, `pass`, and the record `from` of the pass that produced it. */
static void add_message(lhi_iteration_observation *s, const lhi_exec_pass *pass,
                        const lhi_pass_observation *row,
                        const lhi_pass_observation *from,
                        lh_observed_message *to)
{
    bool backward = pass->pass.kind != LH_F;
    *to = (lh_observed_message){
        .link = find_input_link(s, &pass->pass),
        .bytes =
            s->bytes[pass->pass.chunk + (backward ? s->pipeline->n_chunks : 0)],
        .produced_ns = from->free_ns,
        .arrived_ns = row->arrived_ns,
    };
    if (pass->in_delegated) /* copies do not belong to the link */
        to->produced_ns = row->handed_over_ns;
    /* Handed over after its producer finished: it waited for its receive. */
    else if (row->handed_over_ns > from->free_ns)
        to->posted_ns = row->handed_over_ns;
    to->entered_ns =
        get_later_time(row->transfer_start_ns,
                       get_later_time(row->handed_over_ns, from->free_ns));
}

/* Writes one pipeline replica's link messages to `to`, in rank and pass
 * order. */
static void add_messages(lhi_iteration_observation *s, const lh_exec *x,
                         const lhi_rank_observation *parts,
                         lh_observed_message *to)
{
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            if (!uses_link(s, pass))
                continue;
            const producer *m = &s->makers[pass->input];
            add_message(s, pass, &parts[r].rows[i],
                        &parts[m->stage].rows[m->pass], to++);
        }
}

/* Checks whether all ranks read the same clock, that is, run on one host. */
static bool reads_one_clock(const lhi_iteration_observation *s,
                            const lhi_rank_observation *parts)
{
    for (uint32_t r = 1; r < s->n_stages * s->n_copies; r++)
        if (parts[r].head.clock != parts[0].head.clock)
            return false;
    return true;
}

/* Adds the times on the link of all messages in `all`, those of pipeline
 * replica `copy`, to the mean times per replica and link. */
static void add_link_times(lhi_iteration_observation *s, uint32_t copy,
                           const lh_observed_message *all)
{
    for (size_t i = 0; i < s->n_messages; i++) {
        const size_t link = (size_t)copy * s->pipeline->n_links + all[i].link;
        const double ns = (double)(all[i].arrived_ns - all[i].entered_ns);
        s->link_ns[link] += (ns - s->link_ns[link]) / ++s->n_on_link[link];
    }
}

/* Merges all replicas' messages: keeps, of each message, the replica's
 * with the longest time on the link. If ranks read different clocks, uses the
 * first replica only. */
static lh_status merge_messages(lhi_iteration_observation *s, const lh_exec *x,
                                const lhi_rank_observation *parts,
                                lh_error *err)
{
    const bool one_clock = reads_one_clock(s, parts);
    uint32_t n = one_clock ? s->n_copies : 1;
    for (size_t i = 0; i < (size_t)s->n_copies * s->pipeline->n_links; i++) {
        s->link_ns[i] = 0;
        s->n_on_link[i] = 0;
    }
    for (uint32_t q = 0; q < n; q++) {
        lh_observed_message *of = s->messages + q * s->n_messages;
        add_messages(s, x, parts + (size_t)q * s->n_stages, of);
        if (!s->emulates)
            LHI_TRY(lh_observation_estimate_entry(s->pipeline, s->n_messages,
                                                  of, err));
        if (one_clock)
            add_link_times(s, q, of);
        for (size_t i = 0; q > 0 && i < s->n_messages; i++) {
            lh_observed_message *slowest = &s->messages[i];
            if (of[i].arrived_ns - of[i].entered_ns >
                slowest->arrived_ns - slowest->entered_ns)
                *slowest = of[i];
        }
    }
    return LH_OK;
}

/* --- passes and collectives --- */

/* Merges all replicas' passes: keeps each pass's longest duration. */
static void merge_passes(lhi_iteration_observation *s, const lh_exec *x,
                         const lhi_rank_observation *parts)
{
    lh_observed_pass *to = s->passes;
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++, to++) {
            *to = (lh_observed_pass){x->ranks[r].passes[i].pass, 0};
            for (uint32_t q = 0; q < s->n_copies; q++) {
                const lhi_pass_observation *row =
                    &parts[(size_t)q * s->n_stages + r].rows[i];
                to->ns = get_later_time(to->ns, row->ended_ns - row->ready_ns);
            }
        }
    s->n_passes = (size_t)(to - s->passes);
}

/* Stores the durations of the first replica's whole-chunk collectives, in which
 * all replicas take part. Skips collectives on chunk parts, since the monitor
 * models whole chunks only. */
static void merge_collectives(lhi_iteration_observation *s,
                              const lhi_rank_observation *parts)
{
    s->n_collectives = 0;
    for (uint32_t r = 0; r < s->n_stages; r++)
        for (uint32_t i = 0; i < parts[r].head.n_collectives; i++) {
            const lhi_collective_record *x = &parts[r].collectives[i];
            if (x->op != LH_NONE || x->chunk >= s->pipeline->n_chunks)
                continue;
            s->collectives[s->n_collectives++] = (lh_observed_collective){
                x->chunk, x->is_reduce_scatter,
                get_later_time(x->arrive_ns - x->depart_ns, 0)};
        }
}

lh_status lhi_iteration_observation_merge(lhi_iteration_observation *s,
                                          const lh_exec *exec,
                                          const lhi_rank_observation *parts,
                                          uint64_t step, lh_observation *out,
                                          lh_error *err)
{
    LHI_TRY(count_all(s, exec, parts, err));
    LHI_TRY(merge_messages(s, exec, parts, err));
    merge_passes(s, exec, parts);
    merge_collectives(s, parts);
    *out = (lh_observation){.size = sizeof *out,
                            .step = step,
                            .n_messages = s->n_messages,
                            .n_passes = s->n_passes,
                            .n_collectives = s->n_collectives,
                            .messages = s->messages,
                            .passes = s->passes,
                            .collectives = s->collectives};
    return LH_OK;
}

/* Compares two times in ascending order, for qsort(). */
static int compare_times(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t
lhi_iteration_observation_processor_time(const lhi_rank_observation *parts,
                                         uint32_t n_ranks,
                                         uint32_t n_processors, int64_t *edges)
{
    size_t n = 0, k = 0;
    double work_ns = 0;
    for (uint32_t r = 0; r < n_ranks; r++)
        n += parts[r].head.n_passes;
    int64_t *const begins = edges, *const ends = edges + n;
    for (uint32_t r = 0; r < n_ranks; r++)
        for (uint32_t p = 0; p < parts[r].head.n_passes; p++, k++) {
            begins[k] = parts[r].rows[p].ready_ns;
            ends[k] = parts[r].rows[p].ended_ns;
        }
    lhi_sort(begins, n, sizeof *begins, compare_times);
    lhi_sort(ends, n, sizeof *ends, compare_times);
    int64_t at_ns = n ? begins[0] : 0;
    for (size_t b = 0, e = 0; e < n;) {
        const bool begin = b < n && begins[b] <= ends[e];
        const int64_t next_ns = begin ? begins[b] : ends[e];
        const size_t busy = b - e < n_processors ? b - e : n_processors;
        work_ns += (double)(next_ns - at_ns) * (double)busy;
        at_ns = next_ns;
        b += begin;
        e += !begin;
    }
    return (int64_t)(work_ns / n_processors);
}

double lhi_iteration_observation_link_time(const lhi_iteration_observation *s,
                                           uint32_t copy, uint32_t link)
{
    const size_t i = (size_t)copy * s->pipeline->n_links + link;
    return s->n_on_link[i] > 0 ? s->link_ns[i] : NAN;
}

bool lhi_iteration_observation_find_clocks(const lhi_rank_observation *parts,
                                           uint32_t n_devices, uint32_t *clocks)
{
    uint32_t n = 0;
    for (uint32_t d = 0; d < n_devices; d++) {
        uint32_t like = 0;
        while (parts[like].head.clock != parts[d].head.clock)
            like++;
        clocks[d] = like < d ? clocks[like] : n++;
    }
    return n > 1;
}

/* Returns `ns`, measured with the current layers per chunk, scaled by first_ns
 * / now_ns to the initial layers: the ratio of the chunk's pipeline times. */
static int64_t scale_to_initial(int64_t ns, int64_t first_ns, int64_t now_ns)
{
    return now_ns > 0
               ? (int64_t)((double)ns * (double)first_ns / (double)now_ns + 0.5)
               : ns;
}

void lhi_iteration_observation_scale_layers(lhi_iteration_observation *s,
                                            const lh_pipeline *now)
{
    for (size_t i = 0; i < s->n_passes; i++) {
        lh_observed_pass *p = &s->passes[i];
        p->ns =
            scale_to_initial(p->ns, lhi_pass_duration(s->pipeline, &p->pass),
                             lhi_pass_duration(now, &p->pass));
    }
    for (size_t i = 0; i < s->n_collectives; i++) {
        lh_observed_collective *x = &s->collectives[i];
        const lh_chunk *a = &s->pipeline->chunks[x->chunk];
        const lh_chunk *b = &now->chunks[x->chunk];
        bool scatters = x->is_reduce_scatter;
        int64_t rest = x->ns > a->dp_latency_ns ? a->dp_latency_ns : 0;
        x->ns = rest + scale_to_initial(
                           x->ns - rest,
                           scatters ? a->reduce_scatter_ns : a->all_gather_ns,
                           scatters ? b->reduce_scatter_ns : b->all_gather_ns);
    }
}
