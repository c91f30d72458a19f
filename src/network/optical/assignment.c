/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment policies: SD-FF, KSP-FF, CBA (Fu et al., "CBA:
 * Communication-Bound- Aware Cross-Domain Resource Assignment", 2026), and
 * deadlines rather than CBA's labels. */
#include "network/optical/load_gsnr.h"

const lhi_cba_rules lhi_cba_defaults = {
    .label_factor = 2, .refusal_factor = 0.5, .guard = 0.02};

/* Returns the rate per slot, in Mb/s, of a circuit on a free block of `slots`
 * slots with its guard slots; 0: the circuit or one in use would have too much
 * noise. */
static inline int64_t get_rate(const lhi_spectrum *s, const lhi_path *path,
                               uint32_t first, uint32_t slots)
{
    return s->load
               ? lhi_load_gsnr_accept(s->load, path, first, slots - s->guard)
               : path->mbps;
}

bool lhi_assignment_first_fit(const lhi_spectrum *spectrum,
                              const lhi_paths *paths, uint32_t n_paths,
                              uint32_t slots, lhi_circuit_grant *out)
{
    uint64_t starts[LHI_MAX_WORDS];
    slots += spectrum->guard;
    for (uint32_t i = 0; i < n_paths; i++) {
        const lhi_path *p = &paths->paths[i];
        if (!lhi_path_starts(spectrum, p, slots, starts))
            continue;
        uint32_t first = lhi_first_slot(starts);
        *out = (lhi_circuit_grant){.path = p,
                                   .first = first,
                                   .slots = slots,
                                   .mbps = get_rate(spectrum, p, first, slots)};
        if (out->mbps > 0)
            return true;
    }
    return false;
}

bool lhi_assignment_first_fit_rate(const lhi_spectrum *spectrum,
                                   const lhi_paths *paths, uint32_t gbps,
                                   lhi_circuit_grant *out)
{
    if (spectrum->load)
        return lhi_load_gsnr_first_fit(spectrum->load, spectrum, paths, gbps,
                                       out);
    for (uint32_t i = 0; i < paths->count; i++) {
        lhi_paths one = {.count = 1, .paths = &paths->paths[i]};
        int64_t mbps = paths->paths[i].mbps;
        int64_t slots = ((int64_t)gbps * 1000 + mbps - 1) / mbps;
        if (slots <= spectrum->slots &&
            lhi_assignment_first_fit(spectrum, &one, 1, (uint32_t)slots, out))
            return true;
    }
    return false;
}

/* Returns the mask of the slots (units of spectrum) in word `word` of a fibre
 * whose preceding slot is free: bit j is set if slot j-1 is free. `busy`: the
 * fibre's occupied slots as bits. */
static inline uint64_t compute_after_free(const uint64_t *busy, uint32_t word)
{
    uint64_t carry = word > 0 ? ~busy[word - 1] >> 63 : 0;
    return ~busy[word] << 1 | carry;
}

double lhi_spectrum_contiguity(const uint64_t *busy, uint32_t first,
                               uint32_t last)
{
    uint32_t steps = 0;
    for (uint32_t j = first + 1; j <= last; j++)
        steps +=
            !lhi_slot_is_occupied(busy, j - 1) && lhi_slot_is_occupied(busy, j);
    return last > first ? 1 - (double)steps / (double)(last - first) : 1;
}

/* Returns a path's fitness for a block of `slots` slots by equation (1) of Fu
 * et al., "CBA: Communication-Bound-Aware ..." (2026); the highest is chosen.
 * `starts`: bits of the possible first slots, over which the contiguity index
 * is averaged. `rules`: readings of the equation. Equal inputs compare exactly
 * equal. */
double lhi_assignment_fitness(const lhi_spectrum *spectrum,
                              const lhi_cba_rules *rules, const lhi_path *path,
                              uint32_t slots, const uint64_t *starts)
{
    const lhi_spectrum *s = spectrum;
    int64_t total = 0, n_starts = 0;
    uint32_t held = 0;
    for (uint32_t w = 0; w < s->n_words; w++)
        n_starts += lhi_count_bits(starts[w]);
    for (uint32_t h = 0; h < path->hops; h++) {
        const uint64_t *busy = lhi_fibre(s, path->fibres[h]);
        uint64_t behind[LHI_MAX_WORDS];
        uint32_t before = 0, after = 0, steps = 0;
        lhi_slots_shift_down(busy, slots, s->n_words, behind);
        for (uint32_t w = 0; w < s->n_words; w++) {
            uint64_t free = compute_after_free(busy, w);
            held += lhi_count_bits(busy[w]);
            steps += lhi_count_bits(busy[w] & free);
            before += lhi_count_bits(starts[w] & free);
            after += lhi_count_bits(starts[w] & behind[w]);
        }
        total += (int64_t)steps * n_starts + before - after;
    }
    int64_t windows = n_starts * path->hops * (int64_t)(s->slots - 1);
    double contiguity = windows > 0 && !rules->block_contiguity
                            ? 1.0 - (double)total / (double)windows
                            : 1.0;
    double delta =
        1.0 - (double)held / (double)((uint64_t)path->hops * s->slots);
    double km = (double)path->length_m / LHI_M_PER_KM;
    return rules->free_share_factor ? contiguity * delta / km
                                    : contiguity / (km * delta);
}

uint32_t lhi_assignment_best_block(const lhi_spectrum *spectrum,
                                   const lhi_path *path, uint32_t slots,
                                   const uint64_t *starts)
{
    const lhi_spectrum *s = spectrum;
    uint32_t best = 0;
    /* In addition to the previous steps, which are the same for every b. */
    int32_t best_steps = INT32_MAX;
    for (uint32_t w = 0; w < s->n_words; w++)
        for (uint64_t left = starts[w]; left; left &= left - 1) {
            uint32_t b = w * 64 + lhi_lowest_bit(left);
            int32_t steps = 0;
            for (uint32_t h = 0; h < path->hops; h++) {
                const uint64_t *busy = lhi_fibre(s, path->fibres[h]);
                steps += b > 0 && !lhi_slot_is_occupied(busy, b - 1);
                steps -= b + slots < s->slots &&
                         lhi_slot_is_occupied(busy, b + slots);
            }
            if (steps < best_steps) {
                best_steps = steps;
                best = b;
            }
        }
    return best;
}

/* Chooses the path and block of `slots` slots with the highest fitness
 * (lhi_assignment_fitness(), the policy CBA), among the paths whose block does
 * not have or cause too much noise. Returns false if no path has enough
 * contiguous free slots. */
static bool choose_fittest(const lhi_spectrum *s, const lhi_request *r,
                           uint32_t slots, lhi_circuit_grant *out)
{
    uint64_t starts[LHI_MAX_WORDS];
    const lhi_cba_rules *rules = lhi_policy_rules(r->policy);
    double best = 0;
    bool found = false;
    slots += s->guard;
    for (uint32_t i = 0; i < r->paths->count; i++) {
        const lhi_path *p = &r->paths->paths[i];
        if (!lhi_path_starts(s, p, slots, starts))
            continue;
        double fitness = lhi_assignment_fitness(s, rules, p, slots, starts);
        if (found && !(fitness > best))
            continue;
        uint32_t first = rules->block_contiguity
                             ? lhi_first_slot(starts)
                             : lhi_assignment_best_block(s, p, slots, starts);
        int64_t mbps = get_rate(s, p, first, slots);
        if (mbps == 0)
            continue;
        best = fitness;
        found = true;
        *out = (lhi_circuit_grant){p, first, slots, mbps};
    }
    return found;
}

/* A path with a number of slots, as compared by SLACK and CRITICAL. */
typedef struct candidate {
    const lhi_path *path;
    uint32_t slots;
    int64_t mbps;     /* per slot */
    int64_t takes_ns; /* from now to the arrival */
    int64_t delay_ns; /* criterion if the deadline cannot be met */
    int64_t cost;     /* slots x fibres x time */
    bool in_time;
} candidate;

/* Checks whether candidate `a` (path and number of slots) is better than `b`:
 * meets the deadline; then lower cost (slots x hops x time) if both meet it, or
 * less delay if neither does; ties by path index, then more slots. */
static bool is_better(const candidate *a, const candidate *b)
{
    int64_t order;
    if (a->in_time != b->in_time)
        return a->in_time;
    if (a->in_time) {
        order = (a->cost > b->cost) - (a->cost < b->cost);
        if (order == 0)
            order = a->delay_ns - b->delay_ns;
    } else {
        order = a->delay_ns - b->delay_ns;
        if (order == 0)
            order = (a->cost > b->cost) - (a->cost < b->cost);
    }
    if (order == 0)
        order = (int64_t)a->path->index - (int64_t)b->path->index;
    return order != 0 ? order < 0 : a->slots > b->slots;
}

/* Returns the delay, in ns, that ranks paths and slot numbers for a late
 * message: takes_ns, the message's own time. Policy CRITICAL adds `ser`, its
 * sending time, for each message queued behind it, and the excess of `ser` over
 * the producing pass, which delays the next message. */
static int64_t compute_delay(const lhi_request *r, int64_t takes_ns,
                             int64_t ser)
{
    int64_t over = ser > r->period_ns ? ser - r->period_ns : 0;
    if (r->policy->assignment != LH_CRITICAL)
        return takes_ns;
    return takes_ns + r->queued * ser + over;
}

/* Sets a candidate's times and cost from its path, slots and rate. */
static void set_times(const lhi_request *r, uint32_t guard, candidate *c)
{
    int64_t ser = lhi_serialisation_ns(r->bits, c->mbps, c->slots);
    c->takes_ns = r->wait_ns + ser + c->path->length_m * LHI_NS_PER_M;
    c->delay_ns = compute_delay(r, c->takes_ns, ser);
    c->cost = (int64_t)(c->slots + guard) * c->path->hops * c->takes_ns;
    c->in_time = r->deadline_ns >= 0 && c->takes_ns <= r->deadline_ns;
}

/* Chooses the path and number of slots with the lowest cost (slots x hops x
 * time) that meets the deadline, else with the least delay. Returns false if no
 * path has free slots. */
static bool choose_by_deadline(const lhi_spectrum *s, const lhi_request *r,
                               lhi_circuit_grant *out)
{
    uint64_t free[LHI_MAX_WORDS], starts[LHI_MAX_WORDS];
    candidate best = {0};
    for (uint32_t i = 0; i < r->paths->count; i++) {
        const lhi_path *p = &r->paths->paths[i];
        lhi_free_slots(s, p, free);
        for (uint32_t n = r->slots; n > 0; n /= 2) {
            uint32_t width = n + s->guard;
            if (width > s->slots)
                continue;
            candidate o = {.path = p, .slots = n, .mbps = p->mbps};
            set_times(r, s->guard, &o);
            if (best.path && !is_better(&o, &best))
                continue;
            memcpy(starts, free, s->n_words * sizeof *starts);
            if (!lhi_block_starts(starts, width, s->n_words))
                continue;
            uint32_t first = lhi_assignment_best_block(s, p, width, starts);
            o.mbps = get_rate(s, p, first, width);
            if (o.mbps == 0)
                continue;
            set_times(r, s->guard, &o); /* the rate may be lower */
            if (best.path && !is_better(&o, &best))
                continue;
            best = o;
            *out = (lhi_circuit_grant){p, first, width, o.mbps};
        }
    }
    return best.path;
}

bool lhi_assignment_choose(const lhi_spectrum *spectrum,
                           const lhi_request *request, lhi_circuit_grant *out)
{
    const lhi_policy *policy = request->policy;
    if (policy->assignment == LH_SLACK || policy->assignment == LH_CRITICAL)
        return choose_by_deadline(spectrum, request, out);
    uint32_t n_paths =
        policy->assignment == LH_SD_FF ? 1 : request->paths->count;
    for (uint32_t n = request->slots; n > 0; n /= 2) {
        if (policy->assignment == LH_CBA
                ? choose_fittest(spectrum, request, n, out)
                : lhi_assignment_first_fit(spectrum, request->paths, n_paths, n,
                                           out))
            return true;
        if (!policy->ladder)
            break;
    }
    return false;
}
