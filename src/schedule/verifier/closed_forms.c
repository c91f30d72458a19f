/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form bounds (docs/theory/bounds.md), from the pipeline alone. */
#include "schedule/verifier/model.h"

#include "base/integer_math.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/pipeline.h>

#include <string.h>

/* State for one closed form. */
typedef struct closed_form {
    const lh_pipeline *p;
    lhi_verifier links;
    uint32_t n_chunks, n;
    bool joint;
    /* Per-chunk times without waiting: start of the first F and D, time from
     * an F's end to its D, and time that must follow an F or D. */
    int64_t *first_f, *first_d, *round, *after_f, *after_d;
    lh_bound_term *terms;
    uint32_t n_terms;
} closed_form;

/* Returns chunk c of the pipeline. */
static const lh_chunk *get_chunk(const closed_form *f, uint32_t c)
{
    return lh_pipeline_chunk(f->p, c);
}

/* Returns the duration of chunk c's D in ns, or of its whole backward pass if
 * D and W are joint. */
static int64_t get_d_ns(const closed_form *f, uint32_t c)
{
    return get_chunk(f, c)->d_ns + (f->joint ? get_chunk(f, c)->w_ns : 0);
}

/* Returns the duration of chunk c's W in ns; 0 if D and W are joint. */
static int64_t get_w_ns(const closed_form *f, uint32_t c)
{
    return f->joint ? 0 : get_chunk(f, c)->w_ns;
}

/* Returns the time from a pass's end on chunk c to the next pass's start on the
 * microbatch's path; `back`: backward. */
static int64_t compute_hop(const closed_form *f, uint32_t c, bool back)
{
    uint32_t link = back ? f->links.backward[c] : f->links.forward[c];
    if (link == LHI_SAME_DEVICE || link == LHI_NO_LINK)
        return 0;
    const lh_link *l = lh_pipeline_link(f->p, link);
    return l->transfer_ns + l->latency_ns;
}

/* Returns the chunk's reduce-scatter time with its latency, in ns; 0 if it has
 * none. */
static int64_t get_scatter_ns(const lh_chunk *c)
{
    return c->reduce_scatter_ns ? c->reduce_scatter_ns + c->dp_latency_ns : 0;
}

/* Computes the times before and after every chunk's passes on a microbatch's
 * path, in ns. */
static void compute_path_times(closed_form *f)
{
    uint32_t last = f->n_chunks - 1;
    for (uint32_t c = 0; c <= last; c++) {
        const lh_chunk *k = get_chunk(f, c);
        int64_t gather =
            k->all_gather_ns ? k->all_gather_ns + k->dp_latency_ns : 0;
        int64_t came = 0;
        if (c > 0)
            came = f->first_f[c - 1] + get_chunk(f, c - 1)->f_ns +
                   compute_hop(f, c - 1, false);
        f->first_f[c] = lhi_max_int64(gather, came);
        f->after_d[c] = get_w_ns(f, c) + get_scatter_ns(k);
        if (c > 0)
            f->after_d[c] = lhi_max_int64(
                f->after_d[c], compute_hop(f, c, true) + get_d_ns(f, c - 1) +
                                   f->after_d[c - 1]);
    }
    for (uint32_t c = last + 1; c-- > 0;) {
        if (c == last) {
            f->first_d[c] = f->first_f[c] + get_chunk(f, c)->f_ns;
            f->round[c] = 0;
            f->after_f[c] = get_d_ns(f, c) + f->after_d[c];
            continue;
        }
        int64_t there = compute_hop(f, c, false) + get_chunk(f, c + 1)->f_ns;
        int64_t back = get_d_ns(f, c + 1) + compute_hop(f, c + 1, true);
        f->first_d[c] = f->first_d[c + 1] + back;
        f->round[c] = there + f->round[c + 1] + back;
        f->after_f[c] = there + f->after_f[c + 1];
    }
}

/* Appends the term `times` x `ns`, called `name`, to the closed form. The
 * caller stays within LHI_VERIFY_MAX_TERMS. */
static void add_term(closed_form *f, const char *name, int64_t times,
                     int64_t ns)
{
    f->terms[f->n_terms++] = (lh_bound_term){name, times, ns};
}

/* Returns the sum of all terms (times x ns) of a closed-form bound, in ns. */
static int64_t compute_sum(const closed_form *f)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < f->n_terms; i++)
        sum += f->terms[i].times * f->terms[i].ns;
    return sum;
}

/* Fills in the closed-form terms 'path': one microbatch's time until a chunk's
 * first D, this D, and the time after it. Uses the chunk with the largest
 * sum. */
static void fill_path_form(closed_form *f)
{
    uint32_t best = 0;
    int64_t most = -1;
    for (uint32_t c = 0; c < f->n_chunks; c++) {
        int64_t ns = f->first_d[c] + get_d_ns(f, c) + f->after_d[c];
        if (ns > most) {
            most = ns;
            best = c;
        }
    }
    add_term(f, "before the first D", 1, f->first_d[best]);
    add_term(f, "D", 1, get_d_ns(f, best));
    add_term(f, "after a D", 1, f->after_d[best]);
}

/* Returns how many activations of `chunk` fit on the device, rounded up where
 * part of a W could suffice (*whole false). 0: no limit, or other passes
 * change memory. */
static int64_t compute_capacity(const closed_form *f, uint32_t device,
                                uint32_t chunk, bool *whole)
{
    int64_t room = lh_pipeline_memory_limit(f->p, device);
    int64_t each = get_chunk(f, chunk)->mem_f;
    if (room == LH_NO_LIMIT || each <= 0)
        return 0;
    for (uint32_t c = 0; c < f->n_chunks; c++) {
        const lh_chunk *k = get_chunk(f, c);
        if (k->device != device)
            continue;
        room -= k->mem_static;
        if (k->mem_f < 0 || k->mem_d != 0 || k->mem_w != -k->mem_f)
            return 0;
    }
    if (room < each)
        return 0;
    *whole = room % each == 0;
    return room / each + !*whole;
}

/* Totals over a device's chunks. */
typedef struct sums {
    uint32_t n_chunks, chunk;
    int64_t first, work, forth, after, scatter;
} sums;

/* Returns the total work of a device's chunks, and their smallest head
 * (earliest start), tail (time that must follow) and reduce-scatter time. */
static sums sum_device(const closed_form *f, uint32_t device)
{
    sums s = {.first = LHI_NEVER, .after = LHI_NEVER, .scatter = LHI_NEVER};
    for (uint32_t c = 0; c < f->n_chunks; c++) {
        const lh_chunk *k = get_chunk(f, c);
        if (k->device != device)
            continue;
        s.n_chunks++;
        s.chunk = c;
        s.first = lhi_min_int64(s.first, f->first_f[c]);
        s.after = lhi_min_int64(s.after, f->after_d[c]);
        s.scatter = lhi_min_int64(s.scatter, get_scatter_ns(k));
        s.forth += k->f_ns + get_d_ns(f, c);
        s.work += k->f_ns + get_d_ns(f, c) + get_w_ns(f, c);
    }
    return s;
}

/* Fills in the closed-form terms 'device': the least time before a device's
 * first F, all its work, and the least reduce-scatter time after it. */
static void fill_device_form(closed_form *f, uint32_t device)
{
    sums s = sum_device(f, device);
    if (s.n_chunks == 0)
        return;
    add_term(f, "before the first F", 1, s.first);
    add_term(f, "a microbatch's work", f->n, s.work);
    add_term(f, "reduce-scatter", 1, s.scatter);
}

/* Fills in the closed-form terms 'drain': all F and D of a device, then the
 * last microbatch's path after its last D. */
static void fill_drain_form(closed_form *f, uint32_t device)
{
    sums s = sum_device(f, device);
    bool whole;
    if (s.n_chunks == 0)
        return;
    int64_t k =
        s.n_chunks == 1 ? compute_capacity(f, device, s.chunk, &whole) : 0;
    add_term(f, "before the first F", 1, s.first);
    add_term(f, "F and D of a microbatch", f->n, s.forth);
    if (k > 0 && k < f->n && get_w_ns(f, s.chunk) > 0)
        add_term(f, "W that memory asks for", f->n - k, get_w_ns(f, s.chunk));
    add_term(f, "after the last D", 1, s.after);
}

/* Fills in the closed-form terms 'round-trips'. Each chunk of the device has a
 * bound from the number of activations that fit and a microbatch's round trip;
 * the largest counts. */
static void fill_round_trips_form(closed_form *f, uint32_t device)
{
    int64_t most = -1;
    for (uint32_t c = 0; c < f->n_chunks; c++) {
        bool whole;
        if (get_chunk(f, c)->device != device)
            continue;
        int64_t k = compute_capacity(f, device, c, &whole);
        if (k == 0)
            continue;
        int64_t trips = (f->n + k - 1) / k - 1;
        int64_t trip = get_chunk(f, c)->f_ns + f->round[c] + get_d_ns(f, c) +
                       (whole ? get_w_ns(f, c) : 0);
        int64_t ns =
            f->first_d[c] + get_d_ns(f, c) + trips * trip + f->after_d[c];
        if (ns <= most)
            continue;
        most = ns;
        f->n_terms = 0;
        add_term(f, "before the first D", 1, f->first_d[c]);
        add_term(f, "D", 1, get_d_ns(f, c));
        add_term(f, "round trip", trips, trip);
        add_term(f, "after a D", 1, f->after_d[c]);
    }
}

/* Fills in the closed-form terms 'memory', for a device with one chunk on which
 * k activations fit. For n microbatches they are n - k full cycles of F, D and
 * W, then the last microbatch's round trip. */
static void fill_memory_form(closed_form *f, uint32_t device)
{
    sums s = sum_device(f, device);
    bool whole;
    int64_t k =
        s.n_chunks == 1 ? compute_capacity(f, device, s.chunk, &whole) : 0;
    uint32_t c = s.chunk;
    if (k == 0 || k >= f->n)
        return;
    add_term(f, "before the first D", 1, f->first_d[c]);
    add_term(f, "full cycle", f->n - k, s.work);
    add_term(f, "round trip of the last microbatch", 1, f->round[c]);
    add_term(f, "D", 1, get_d_ns(f, c));
    add_term(f, "after a D", 1, f->after_d[c]);
}

/* Fills in the closed-form terms 'link': all transfers of the link called
 * `link`, between the earliest arrival and the shortest remaining path. */
static void fill_link_form(closed_form *f, const char *link)
{
    int64_t first = LHI_NEVER, after = LHI_NEVER, busy = 0;
    for (uint32_t i = 0; i < 2 * f->n_chunks; i++) {
        uint32_t c = i / 2;
        bool back = i % 2;
        uint32_t l = back ? f->links.backward[c] : f->links.forward[c];
        if (l == LHI_SAME_DEVICE || l == LHI_NO_LINK ||
            strcmp(f->links.resource_names[f->links.link_resources[l]], link))
            continue;
        const lh_link *k = lh_pipeline_link(f->p, l);
        uint32_t to = back ? c - 1 : c + 1;
        busy += k->transfer_ns;
        first =
            lhi_min_int64(first, back ? f->first_d[c] + get_d_ns(f, c)
                                      : f->first_f[c] + get_chunk(f, c)->f_ns);
        after = lhi_min_int64(
            after,
            k->latency_ns + (back ? get_d_ns(f, to) + f->after_d[to]
                                  : get_chunk(f, to)->f_ns + f->after_f[to]));
    }
    if (first == LHI_NEVER)
        return;
    add_term(f, "before the first message", 1, first);
    add_term(f, "a microbatch's messages", f->n, busy);
    add_term(f, "after the last message", 1, after);
}

/* Prepares a closed-form bound: computes the path times before and after every
 * chunk's passes. Memory belongs to `mem`. */
static lh_status make_closed_form(closed_form *f, lhi_arena *mem, lh_error *err)
{
    size_t n = f->n_chunks;
    f->links = (lhi_verifier){.pipeline = f->p,
                              .n_devices = lh_pipeline_n_devices(f->p),
                              .n_chunks = f->n_chunks,
                              .path_length = f->n_chunks,
                              .n_microbatches = f->n,
                              .mem = mem};
    f->first_f = LHI_NEW(mem, int64_t, n);
    f->first_d = LHI_NEW(mem, int64_t, n);
    f->round = LHI_NEW(mem, int64_t, n);
    f->after_f = LHI_NEW(mem, int64_t, n);
    f->after_d = LHI_NEW(mem, int64_t, n);
    if (!f->first_f || !f->first_d || !f->round || !f->after_f || !f->after_d)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_verify_find_links(&f->links, err));
    compute_path_times(f);
    return LH_OK;
}

lh_status lhi_verify_compute_closed_form(const lh_pipeline *p,
                                         lh_bound_kind form, uint32_t device,
                                         const char *link, lh_bound_term *terms,
                                         uint32_t *n, int64_t *sum,
                                         lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    closed_form f = {.p = p,
                     .n_chunks = lh_pipeline_n_chunks(p),
                     .n = lh_pipeline_n_microbatches(p),
                     .joint = lhi_pipeline_is_joint(p),
                     .terms = terms};
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = make_closed_form(&f, mem, err);
    bool has_device = device < lh_pipeline_n_devices(p);
    if (status == LH_OK && form == LH_BOUND_PATH)
        fill_path_form(&f);
    else if (status == LH_OK && form == LH_BOUND_LINK)
        fill_link_form(&f, link);
    else if (status == LH_OK && has_device)
        (form == LH_BOUND_DEVICE         ? fill_device_form
         : form == LH_BOUND_DEVICE_DRAIN ? fill_drain_form
         : form == LH_BOUND_ROUND_TRIPS  ? fill_round_trips_form
                                         : fill_memory_form)(&f, device);
    lhi_arena_free(mem);
    *n = f.n_terms;
    *sum = compute_sum(&f);
    return status;
}
