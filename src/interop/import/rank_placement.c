/* SPDX-License-Identifier: Apache-2.0 */
/* Rank placement. longhaul's exports specify it in comments, one line per run
 * of ranks in a datacenter: "# Ranks 0 to 127: east". */
#include "interop/import/import_internal.h"

#include "base/escape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The placement comment reader's state. */
typedef struct placement_reader {
    lhi_imported_job *in;
    const lh_import_options *o;
    uint32_t n_sites;
    uint64_t used[LH_MAX_DATACENTERS]; /* GPUs */
    bool failed;                       /* out of memory */
} placement_reader;

static const char remark[] = "# Ranks ";

/* --- lines ---------------------------------------------------------------- */

/* A parsed line: the first and last rank, and the datacenter. */
typedef struct placement_line {
    uint64_t first, last;
    char *name;
} placement_line;

/* Reads a number at *at that is followed by the text `then`, and advances *at
 * past both. Returns false if they are not there. */
static bool read_rank(char **at, const char *then, uint64_t *out)
{
    const char *const digits = *at;
    *out = strtoull(digits, at, 10);
    if (*at == digits || *digits < '0' || *digits > '9' ||
        strncmp(*at, then, strlen(then)) != 0)
        return false;
    *at += strlen(then);
    return true;
}

/* Reads a placement such as "0 to 127: east", from which it removes trailing
 * space. Returns false if it is invalid. */
static bool parse_placement_line(char *text, placement_line *out)
{
    char *at = text, *end = text + strlen(text);
    while (end > text && strchr(" \t\r", end[-1]))
        *--end = '\0';
    if (!read_rank(&at, " to ", &out->first) ||
        !read_rank(&at, ": ", &out->last))
        return false;
    out->name = at;
    return out->first <= out->last;
}

/* Returns the text after "# Ranks " in the next line that begins with it, at or
 * after `at`, or NULL. The whole text is `begin` to `end`. */
static const char *find_next_remark(const char *at, const char *begin,
                                    const char *end)
{
    const size_t size = sizeof remark - 1;
    for (; at < end; at++) {
        if ((at == begin || at[-1] == '\n') && (size_t)(end - at) > size &&
            memcmp(at, remark, size) == 0)
            return at + size;
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return NULL;
        at = next;
    }
    return NULL;
}

/* --- datacenters ---------------------------------------------------------- */

/* Checks whether datacenter `i` has this name, as exports escape it. Sets
 * p->failed if memory runs out. */
static bool has_site_name(placement_reader *p, uint32_t i, const char *name)
{
    char own[16];
    lhi_text shown = {0};
    lhi_text_add_escaped(
        &shown,
        p->o->cluster ? p->o->cluster->datacenters[i].name
                      : lhi_draft_site_name(&p->o->machines->sites[i], i, own),
        SIZE_MAX);
    const bool same = !shown.failed && strcmp(shown.data, name) == 0;
    p->failed = p->failed || shown.failed;
    lhi_text_fini(&shown);
    return same;
}

/* Returns datacenter `i`'s GPU count; UINT64_MAX if its size is to follow from
 * the ranks. */
static uint64_t count_site_gpus(const placement_reader *p, uint32_t i)
{
    if (p->o->cluster)
        return p->o->cluster->datacenters[i].gpus;
    if (!lhi_import_count_gpus(p->o))
        return UINT64_MAX;
    const lh_draft_site *site = &p->o->machines->sites[i];
    return (uint64_t)site->nodes * lhi_draft_node_gpus(site);
}

/* --- placement ------------------------------------------------------------ */

/* Discards the rank placement that comments gave, so that ranks fill the
 * datacenters in order. With several datacenters adds a note that joins `what`,
 * the subject, and `why`. Always returns false. */
static bool discard_placement(placement_reader *p, const char *why,
                              const char *what)
{
    if (p->n_sites > 1)
        lhi_import_note(p->in,
                        "# Ranks ... %.80s: %s; ranks fill the datacenters in "
                        "the order of the cluster instead",
                        what, why);
    p->in->n_rank_ranges = 0;
    return false;
}

/* Adds the ranks that one comment line of an exported file assigns to a
 * datacenter ("# Ranks 0 to 127: east") to the placement. Returns false
 * after an allocation failure (p->failed), or after discarding the placement
 * because the line contradicts the given datacenters or the preceding lines. */
static bool add_placement(placement_reader *p, const placement_line *line)
{
    lhi_imported_job *in = p->in;
    const uint64_t next =
        in->n_rank_ranges ? in->rank_ranges[in->n_rank_ranges - 1].end : 0;
    uint32_t i = 0;
    while (i < p->n_sites && !has_site_name(p, i, line->name))
        i++;
    if (p->failed)
        return false;
    if (i == p->n_sites)
        return discard_placement(p, "is not a datacenter of the cluster",
                                 line->name);
    if (line->first != next || line->last >= LH_MAX_GPUS)
        return discard_placement(
            p, "ranks do not continue from the previous line", line->name);
    p->used[i] += line->last + 1 - line->first;
    if (p->used[i] > count_site_gpus(p, i))
        return discard_placement(p, "has fewer GPUs", line->name);
    in->rank_ranges[in->n_rank_ranges++] = (lhi_rank_range){line->last + 1, i};
    return true;
}

/* Returns how many ranks comments place in datacenters. */
static uint64_t count_placed_ranks(const lhi_imported_job *in)
{
    return in->n_rank_ranges ? in->rank_ranges[in->n_rank_ranges - 1].end : 0;
}

lh_status lhi_import_read_placement(const char *text, size_t len,
                                    const lh_import_options *options,
                                    lhi_imported_job *in, lh_error *err)
{
    placement_reader p = {.in = in, .o = options};
    const char *const end = text + len;
    uint32_t n = 0;
    p.n_sites = options->cluster ? options->cluster->n_datacenters
                                 : options->machines->n_sites;
    for (const char *at = text; (at = find_next_remark(at, text, end));)
        n++;
    if (n == 0)
        return LH_OK;
    in->rank_ranges = LHI_NEW(in->mem, lhi_rank_range, n);
    if (!in->rank_ranges)
        return lhi_fail_nomem(err);
    for (const char *at = text; (at = find_next_remark(at, text, end));) {
        placement_line line;
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        char *own =
            lhi_arena_strndup(in->mem, at, (size_t)((stop ? stop : end) - at));
        if (!own)
            return lhi_fail_nomem(err);
        if (!parse_placement_line(own, &line)) {
            discard_placement(&p, "is not \"FIRST to LAST: DATACENTER\"", own);
            return LH_OK;
        }
        if (!add_placement(&p, &line))
            return p.failed ? lhi_fail_nomem(err) : LH_OK;
    }
    const uint64_t there = lhi_import_count_gpus(options),
                   placed = count_placed_ranks(in);
    if (there > placed)
        lhi_import_note(in,
                        "# Ranks: these comments place %" PRIu64
                        " ranks, which use only "
                        "as many of the %" PRIu64 " GPUs",
                        placed, there);
    return LH_OK;
}

lh_status lhi_import_find_gpus(const char *file, uint32_t launched,
                               const lh_import_options *options,
                               const lhi_imported_job *in, uint64_t *gpus,
                               lh_error *err)
{
    const uint64_t placed = count_placed_ranks(in);
    const uint64_t there = placed ? placed : lhi_import_count_gpus(options);
    if (there && launched && there != launched)
        return lhi_fail(err, LH_EINPUT,
                        placed ? "%s: starts %u processes, but its comments "
                                 "place %llu ranks; change \"# Ranks\""
                               : "%s: starts %u processes, but there are %llu "
                                 "GPUs; describe the machines that it runs on",
                        file, launched, (unsigned long long)there);
    *gpus = there ? there : launched;
    return LH_OK;
}
