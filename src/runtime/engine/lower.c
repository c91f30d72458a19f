/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers a schedule to an execution plan. Passes keep their order. Receives are
 * posted according to the simulator's prediction of when their messages are
 * produced (CrossPipe §6.3), so they never delay a pass. */
#include "base/options.h"
#include "runtime/engine/execution_plan.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/simulate.h>

#include <inttypes.h>
#include <stdlib.h>

/* State of the lowering. */
typedef struct lowering {
    const lh_pipeline *p;
    const lh_schedule *s;
    lh_timeline *t;
    lhi_arena *scratch;
    lh_exec *x;
    int64_t *produced_ns; /* per message input: when produced */
    int64_t *arrive_ns;   /* and when arrived */
    uint64_t *turns;      /* per input; UINT64_MAX */
    int64_t lead_ns;
} lowering;

/* Returns the number of the input (message or local data) of a chunk's F for a
 * microbatch. The number of the same chunk's backward input is larger by
 * n_half. */
static uint32_t get_input_number(const lowering *l, uint32_t chunk,
                                 uint32_t microbatch)
{
    return chunk * l->p->n_microbatches + microbatch;
}

/* Returns the number of the input message or local input of a pass; LH_NONE:
 * none. */
static uint32_t find_input(const lowering *l, const lh_pass *pass)
{
    uint32_t i = get_input_number(l, pass->chunk, pass->microbatch);
    if (pass->kind == LH_F)
        return lhi_is_first_chunk(l->p, pass->chunk) ? LH_NONE : i;
    if (pass->kind == LH_W || lhi_is_last_chunk(l->p, pass->chunk))
        return LH_NONE;
    return l->x->n_half + i;
}

/* Returns the number of the input that a pass produces for its successor, and
 * in *route the link it uses; LH_NONE: none. */
static uint32_t find_output(const lowering *l, const lh_pass *pass,
                            const lhi_route **route)
{
    uint32_t i = get_input_number(l, pass->chunk, pass->microbatch);
    uint32_t n = l->p->n_microbatches;
    if (pass->kind == LH_F) {
        *route = &l->p->forward[pass->chunk];
        return lhi_is_last_chunk(l->p, pass->chunk) ? LH_NONE : i + n;
    }
    *route = &l->p->backward[pass->chunk];
    return pass->kind == LH_W || lhi_is_first_chunk(l->p, pass->chunk)
               ? LH_NONE
               : l->x->n_half + i - n;
}

/* Checks whether input number `input` is a message from another rank, rather
 * than local data of the same rank. */
static bool is_message(const lowering *l, uint32_t input)
{
    uint32_t c = input % l->x->n_half / l->p->n_microbatches;
    return input < l->x->n_half ? l->p->forward[c - 1].message
                                : l->p->backward[c + 1].message;
}

/* --- prediction --- */

/* Stores each message's times from the simulated timeline, and its position on
 * links with an explicit order. */
static lh_status record_messages(lowering *l, lh_error *err)
{
    size_t n = 2 * (size_t)l->x->n_half;
    l->produced_ns = LHI_NEW(l->scratch, int64_t, n);
    l->arrive_ns = LHI_NEW(l->scratch, int64_t, n);
    l->turns = LHI_NEW(l->scratch, uint64_t, n);
    if (!l->produced_ns || !l->arrive_ns || !l->turns)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        l->turns[i] = UINT64_MAX;
    uint32_t count;
    const lh_message *messages = lh_timeline_messages(l->t, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t input = find_input(l, &messages[i].consumer);
        l->produced_ns[input] = messages[i].produced_ns;
        l->arrive_ns[input] = messages[i].arrive_ns;
    }
    if (l->x->options.fifo)
        return LH_OK;
    for (uint32_t k = 0; k < lh_schedule_n_link_orders(l->s); k++) {
        const lh_link_order *order = lh_schedule_link_order(l->s, k);
        const lhi_route *route;
        for (uint32_t i = 0; i < order->n_passes; i++)
            l->turns[find_output(l, &order->passes[i], &route)] = i;
    }
    return LH_OK;
}

/* Compares times for qsort(): ascending. */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sets rank->n_in_flight, the greatest number of the rank's messages that are
 * sent and have not arrived at one time in the simulation. */
static lh_status count_in_flight(lowering *l, lhi_exec_rank *rank,
                                 lh_error *err)
{
    lhi_mark mark = lhi_arena_mark(l->scratch);
    int64_t *from = LHI_NEW(l->scratch, int64_t, rank->n_passes);
    int64_t *to = LHI_NEW(l->scratch, int64_t, rank->n_passes);
    if (!from || !to)
        return lhi_fail_nomem(err);
    uint32_t n = 0, there = 0;
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        if (pass->output == LH_NONE || pass->local_output)
            continue;
        from[n] = l->produced_ns[pass->output];
        to[n++] = l->arrive_ns[pass->output];
    }
    if (n)
        qsort(to, n, sizeof *to, compare_times);
    for (uint32_t i = 0; i < n; i++) { /* `from` ascends with the passes */
        while (to[there] <= from[i] && there < i)
            there++;
        if (i + 1 - there > rank->n_in_flight)
            rank->n_in_flight = i + 1 - there;
    }
    lhi_arena_rewind(l->scratch, mark);
    return LH_OK;
}

/* Sets the rank's number of output buffers, rank->n_buffers: messages in
 * flight, plus outputs that wait for a pass on the same rank, plus one for the
 * running pass. Ranks that send get a spare one for longer transfers. */
static void count_buffers(lhi_exec_rank *rank)
{
    uint32_t left = 0, most = 0;
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        most = left > most ? left : most;
        left += pass->output != LH_NONE && pass->local_output;
        left -= pass->input != LH_NONE && pass->local_input;
    }
    rank->n_buffers = rank->n_in_flight + most + (rank->n_in_flight ? 2 : 1);
    if (rank->n_buffers < 2)
        rank->n_buffers = 2;
}

/* --- passes --- */

/* Fills in a pass from its simulated run: input, output, link and predicted
 * times. */
static void lower_pass(const lowering *l, const lh_timeline_run *run,
                       lhi_exec_pass *out)
{
    const lhi_route *route;
    *out = (lhi_exec_pass){.pass = run->pass,
                           .peer = LH_NONE,
                           .link = LH_NONE,
                           .in_link = LH_NONE,
                           .slot = LH_NONE,
                           .turn = UINT64_MAX,
                           .queue = LH_NONE,
                           .start_ns = run->start_ns,
                           .end_ns = run->end_ns,
                           .issued_ns = run->issued_ns};
    out->input = find_input(l, &run->pass);
    out->output = find_output(l, &run->pass, &route);
    out->host_copy_ns =
        run->end_ns - run->start_ns - lhi_pass_duration(l->p, &run->pass);
    if (out->input != LH_NONE)
        out->local_input = !is_message(l, out->input);
    if (out->output == LH_NONE)
        return;
    out->local_output = !route->message;
    if (route->message) {
        uint32_t c = out->output % l->x->n_half / l->p->n_microbatches;
        out->peer = l->p->chunks[c].device;
        out->link = route->resource;
        out->turn = l->turns[out->output];
        out->delegated =
            lhi_exec_is_delegated(&l->x->options, route, &out->staging_ns);
    }
}

/* Marks each chunk's first F and its last W or B among the rank's passes.
 * `seen`: scratch, two flags per chunk. */
static void mark_first_and_last(const lowering *l, lhi_exec_rank *rank,
                                bool *seen)
{
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        lhi_exec_pass *pass = &rank->passes[i];
        uint32_t c = pass->pass.chunk;
        if (pass->pass.kind == LH_F && !seen[c])
            seen[c] = pass->is_first = true;
    }
    for (uint32_t i = rank->n_passes; i-- > 0;) {
        lhi_exec_pass *pass = &rank->passes[i];
        uint32_t c = l->p->n_chunks + pass->pass.chunk;
        if ((pass->pass.kind == LH_W || pass->pass.kind == LH_B) && !seen[c])
            seen[c] = pass->is_last = true;
    }
}

/* --- receives --- */

/* Returns the pass's index before which the receive of pass `consumer`'s
 * input is posted. Early: one pass before its message is produced; late: when
 * the rank reaches the consumer; or, in mode late-fd, before the W passes that
 * precede the consumer. */
static uint32_t find_post_position(const lowering *l, const lhi_exec_rank *rank,
                                   uint32_t consumer)
{
    const lhi_exec_pass *passes = rank->passes;
    uint32_t at = consumer;
    lh_receives receives = passes[consumer].in_delegated
                               ? LH_RECEIVES_EARLY
                               : l->x->options.receives;
    if (receives == LH_RECEIVES_LATE)
        return at;
    if (receives == LH_RECEIVES_LATE_FD) {
        while (at > 0 && passes[at - 1].pass.kind == LH_W)
            at--;
        return at;
    }
    int64_t by_ns = l->produced_ns[passes[consumer].input] - l->lead_ns;
    uint32_t low = 0; /* ends ascend; equal times may follow */
    while (low < at) {
        uint32_t mid = low + (at - low) / 2;
        if (passes[mid].issued_ns < by_ns)
            low = mid + 1;
        else
            at = mid;
    }
    return low;
}

/* qsort() comparator: receives by posting position, then by consuming pass. */
static int compare_posts(const void *a, const void *b)
{
    const lhi_exec_post *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    return (x->consumer > y->consumer) - (x->consumer < y->consumer);
}

/* Assigns receive buffers (slots) to the rank's receives round-robin in
 * consumption order, so that the next needed message always has one. */
static void assign_slots(const lowering *l, lhi_exec_rank *rank)
{
    lhi_exec_post *posts = rank->posts;
    uint32_t slots = 1;
    for (uint32_t k = 0; k < rank->n_posts; k++) {
        /* Messages consumed before this post need no buffer by then. */
        uint32_t low = 0, high = k;
        while (low < high) {
            uint32_t mid = low + (high - low) / 2;
            if (posts[mid].consumer < posts[k].before)
                low = mid + 1;
            else
                high = mid;
        }
        if (k - low + 1 > slots)
            slots = k - low + 1;
    }
    if (l->x->options.receive_slots && slots > l->x->options.receive_slots)
        slots = l->x->options.receive_slots;
    rank->n_slots = rank->n_posts ? slots : 0;
    for (uint32_t k = 0; k < rank->n_posts; k++) {
        posts[k].slot = k % slots;
        rank->passes[posts[k].consumer].slot = posts[k].slot;
        if (k >= slots && posts[k].before <= posts[k - slots].consumer)
            posts[k].before = posts[k - slots].consumer + 1;
    }
}

/* Fills in the rank's receives: sending rank, link, buffer, and the pass
 * before which each is posted. */
static void lower_posts(const lowering *l, lhi_exec_rank *rank)
{
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        if (pass->input == LH_NONE || pass->local_input)
            continue;
        uint32_t input = pass->input;
        uint32_t c = input % l->x->n_half / l->p->n_microbatches;
        const lhi_route *route = input < l->x->n_half ? &l->p->forward[c - 1]
                                                      : &l->p->backward[c + 1];
        rank->passes[i].in_link = route->resource;
        rank->passes[i].in_delegated = lhi_exec_is_delegated(
            &l->x->options, route, &rank->passes[i].in_staging_ns);
        rank->posts[rank->n_posts++] = (lhi_exec_post){
            .input = input,
            .peer = lhi_exec_producer(l->x, input, l->p->n_microbatches),
            .before = find_post_position(l, rank, i),
            .consumer = i,
            .link = route->resource,
            .delegated = pass->in_delegated,
            .queue = LH_NONE,
        };
    }
    assign_slots(l, rank);
    if (rank->n_posts)
        qsort(rank->posts, rank->n_posts, sizeof *rank->posts, compare_posts);
    uint32_t k = 0;
    for (uint32_t i = 0; i <= rank->n_passes; i++) {
        rank->passes[i].first_post = k;
        while (k < rank->n_posts && rank->posts[k].before == i)
            k++;
    }
}

/* --- printable instructions --- */

/* Appends an instruction of stream `stream` (compute, send, receive, data,
 * offload) for `pass`, which may run once the rank's first `after` passes are
 * done. The caller fills in the peer rank and link. */
static lh_instruction *add_instruction(lhi_exec_rank *rank, lh_stream stream,
                                       const lh_pass *pass, uint32_t after)
{
    lh_instruction *out = &rank->instructions[rank->n_instructions++];
    *out = (lh_instruction){.stream = stream,
                            .pass = *pass,
                            .passes_before = after,
                            .op = LH_NONE,
                            .needed_by_pass = LH_NONE,
                            .peer = LH_NONE,
                            .link = LH_NONE,
                            .slot = LH_NONE,
                            .link_position = UINT64_MAX,
                            .queue = LH_NONE};
    if (after)
        out->predicted_ns = rank->passes[after - 1].issued_ns;
    return out;
}

/* Appends an instruction for each receive that is posted before pass `i`. */
static void add_posts(lhi_exec_rank *rank, uint32_t i)
{
    const lhi_exec_pass *passes = rank->passes;
    for (uint32_t k = passes[i].first_post; k < passes[i + 1].first_post; k++) {
        const lhi_exec_post *post = &rank->posts[k];
        const lh_pass *consumer = &passes[post->consumer].pass;
        lh_instruction *in =
            add_instruction(rank,
                            consumer->kind == LH_F ? LH_STREAM_RECEIVE_PREV
                                                   : LH_STREAM_RECEIVE_NEXT,
                            consumer, i);
        in->peer = post->peer;
        in->slot = post->slot;
        in->link = post->link;
        in->queue = post->queue;
    }
}

/* Appends instructions for pass `i` and for its output's send if that is a
 * message. */
static void add_pass(lhi_exec_rank *rank, uint32_t i)
{
    const lhi_exec_pass *pass = &rank->passes[i];
    add_instruction(rank, LH_STREAM_COMPUTE, &pass->pass, i)->predicted_ns =
        pass->start_ns;
    if (pass->output != LH_NONE && !pass->local_output) {
        lh_instruction *out = add_instruction(
            rank,
            pass->pass.kind == LH_F ? LH_STREAM_SEND_NEXT : LH_STREAM_SEND_PREV,
            &pass->pass, i + 1);
        out->peer = pass->peer;
        out->link = pass->link;
        out->link_position = pass->turn;
        out->queue = pass->queue;
    }
}

/* Appends instructions for the data-parallel collectives `from` to `end` - 1
 * that are launched after at most `after` passes. Returns the next collective's
 * index. */
static uint32_t add_communications(lhi_exec_rank *rank, uint32_t from,
                                   uint32_t end, uint32_t after)
{
    for (; from < end && rank->data[from].after <= after; from++) {
        const lhi_exec_data *data = &rank->data[from];
        lh_pass what = {data->chunk, 0, 0, 1, data->is_scatter ? LH_W : LH_F,
                        false};
        lh_instruction *in =
            add_instruction(rank, LH_STREAM_DATA, &what, data->after);
        in->op = data->op;
        in->needed_by_pass = data->before;
        in->predicted_ns = data->predicted_ns;
    }
    return from;
}

/* Appends instructions for the offload copies that pass `i` launches: with
 * is_back those to the device, at its start; otherwise those to storage, at
 * its end. */
static void add_copies(lhi_exec_rank *rank, uint32_t i, bool is_back)
{
    const lhi_exec_pass *pass = &rank->passes[i];
    for (uint32_t k = pass->first_copy; k < pass[1].first_copy; k++) {
        const lhi_offload_copy *copy = &rank->copies[k];
        lh_pass what = {copy->chunk, copy->microbatch,      0,
                        1,           is_back ? LH_B : LH_F, false};
        if (copy->to_device != is_back)
            continue;
        lh_instruction *in =
            add_instruction(rank, LH_STREAM_OFFLOAD, &what, i + !is_back);
        in->needed_by_pass = copy->before;
        in->predicted_ns = is_back ? pass->start_ns : pass->end_ns;
    }
}

/* Builds the rank's instructions: passes, receives, sends, collectives and
 * offload copies, in launch order. */
static lh_status build_instructions(lowering *l, lhi_exec_rank *rank,
                                    lh_error *err)
{
    size_t most = 2 * (size_t)rank->n_passes + rank->n_posts + rank->n_data +
                  rank->n_copies;
    rank->instructions = LHI_NEW(l->x->mem, lh_instruction, most);
    if (!rank->instructions)
        return lhi_fail_nomem(err);
    uint32_t data = add_communications(rank, 0, rank->passes[0].first_data, 0);
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        uint32_t end = rank->passes[i + 1].first_data;
        add_posts(rank, i);
        data = add_communications(rank, data, end, i);
        add_copies(rank, i, true);
        add_pass(rank, i);
        data = add_communications(rank, data, end, i + 1);
        add_copies(rank, i, false);
    }
    return LH_OK;
}

/* --- lowering --- */

/* Builds device `d`'s program: passes, receives, queues, collectives and
 * offload copies. `seen`: scratch, two flags per chunk. */
static lh_status lower_rank(lowering *l, uint32_t d, bool *seen, lh_error *err)
{
    lhi_exec_rank *rank = &l->x->ranks[d];
    const lh_timeline_run *runs = lh_timeline_runs(l->t, d, &rank->n_passes);
    rank->passes = LHI_NEW(l->x->mem, lhi_exec_pass, rank->n_passes + 1u);
    rank->posts = LHI_NEW(l->x->mem, lhi_exec_post, rank->n_passes);
    if (!rank->passes || !rank->posts)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < rank->n_passes; i++)
        lower_pass(l, &runs[i], &rank->passes[i]);
    mark_first_and_last(l, rank, seen);
    lower_posts(l, rank);
    LHI_TRY(lhi_exec_add_lanes(l->x, d, l->produced_ns, l->arrive_ns, err));
    LHI_TRY(count_in_flight(l, rank, err));
    count_buffers(rank);
    LHI_TRY(lhi_exec_lower_data(l->p, l->x->mem, l->scratch, rank, err));
    LHI_TRY(lhi_exec_lower_copies(l->p, l->x->options.lists_host_copies,
                                  l->x->mem, l->scratch, rank, err));
    return build_instructions(l, rank, err);
}

/* Allocates the execution plan's tables; fills in the names of links, each
 * chunk's rank, and the message count per link. */
static lh_status copy_names(lh_exec *x, const lh_pipeline *p, lh_error *err)
{
    x->link_names = LHI_NEW(x->mem, const char *, p->n_resources);
    x->chunk_ranks = LHI_NEW(x->mem, uint32_t, p->n_chunks);
    x->ranks = LHI_NEW(x->mem, lhi_exec_rank, p->n_devices);
    x->link_messages = LHI_NEW(x->mem, uint64_t, p->n_resources);
    if (!x->link_messages || !x->link_names || !x->chunk_ranks || !x->ranks)
        return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < p->n_resources; r++)
        if (!(x->link_names[r] =
                  lhi_arena_strdup(x->mem, p->resource_names[r])))
            return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < p->n_resources; r++)
        x->link_messages[r] =
            (uint64_t)p->resource_routes[r] * p->n_microbatches;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        x->chunk_ranks[c] = p->chunks[c].device;
    return LH_OK;
}

/* Builds all ranks' programs from the simulated timeline. */
static lh_status lower_all(lowering *l, lh_error *err)
{
    lh_exec *x = l->x;
    const lh_pipeline *p = l->p;
    x->n_ranks = p->n_devices;
    x->n_links = p->n_resources;
    x->n_chunks = p->n_chunks;
    x->n_half = p->n_chunks * p->n_microbatches;
    x->predicted_ns = lh_timeline_makespan(l->t);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        int64_t most = k->f_ns > k->d_ns ? k->f_ns : k->d_ns;
        l->lead_ns = most > l->lead_ns ? most : l->lead_ns;
    }
    LHI_TRY(copy_names(x, p, err));
    LHI_TRY(record_messages(l, err));
    bool *seen = LHI_NEW(l->scratch, bool, 2 * (size_t)p->n_chunks);
    if (!seen)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++)
        LHI_TRY(lower_rank(l, d, seen, err));
    return LH_OK;
}

lh_status lhi_exec_lower(const lh_pipeline *pipeline,
                         const lh_schedule *schedule,
                         const lh_exec_options *options, lh_exec **out,
                         lh_error *err)
{
    lh_exec_options with;
    LHI_TRY(LHI_OPTIONS_COPY(lh_exec_options, &with, options, err));
    lowering l = {.p = pipeline, .s = schedule};
    if (!with.override_receives && with.receives == LH_RECEIVES_EARLY)
        with.receives = lh_pipeline_receives(pipeline);
    lhi_arena *mem = lhi_arena_make(0);
    l.scratch = lhi_arena_make(0);
    l.x = mem && l.scratch ? LHI_NEW(mem, lh_exec, 1) : NULL;
    lh_status status = l.x ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_exec_copy_delegation(pipeline, &with, mem, err);
    if (status == LH_OK)
        status = lhi_exec_simulate(pipeline, schedule, &with, &l.t, err);
    if (status == LH_OK) {
        l.x->mem = mem;
        l.x->options = with;
        status = lower_all(&l, err);
    }
    if (status == LH_OK)
        status = lhi_schedule_copy(schedule, &l.x->schedule, err);
    lh_timeline_free(l.t);
    lhi_arena_free(l.scratch);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = l.x;
    return LH_OK;
}

lh_status lh_exec_make(const lh_pipeline *pipeline, const lh_schedule *schedule,
                       const lh_exec_options *options, lh_exec **out,
                       lh_error *err)
{
    lh_exec *x;
    LHI_TRY(lhi_pipeline_require_separate_passes(
        pipeline, "execution (train, explain)", err));
    if (pipeline->bidirectional && pipeline->has_collectives)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "explain and train support two directions (placement "
                        "bd) only without data-parallel communication; train "
                        "a plan with --device cpu, remove data_parallel, or "
                        "plan with layout.framework: longhaul");
    LHI_TRY(lhi_exec_lower(pipeline, schedule, options, &x, err));
    lh_status status = lhi_exec_check_deadlock(x, err);
    if (status != LH_OK) {
        lh_exec_free(x);
        return status;
    }
    *out = x;
    return LH_OK;
}
