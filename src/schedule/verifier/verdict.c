/* SPDX-License-Identifier: Apache-2.0 */
/* Collects violations, and provides helpers shared by all checks. */
#include "schedule/pipeline/accessors.h"
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/schedule.h>

#include <stdarg.h>
#include <stdio.h>

bool lhi_verify_is_verdict_full(const lhi_verifier *judge)
{
    return judge->verdict->n_kept == LHI_MAX_VIOLATIONS;
}

void lhi_verify_count_violations(lhi_verifier *judge, uint64_t count)
{
    judge->verdict->total += count;
}

void lhi_verify_add_violation(lhi_verifier *judge, const char *format, ...)
{
    lh_verdict *v = judge->verdict;
    v->total++;
    if (lhi_verify_is_verdict_full(judge))
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *copy = lhi_arena_strdup(v->mem, text);
    if (copy)
        v->texts[v->n_kept++] = copy;
    else
        judge->no_memory = true;
}

uint32_t lhi_verify_get_cell(const lhi_verifier *judge, uint32_t node)
{
    uint32_t row = judge->rows[node];
    return lhi_schedule_cell(judge->schedule, row, node - judge->first[row]);
}

int64_t lhi_verify_compute_share(int64_t total, const lh_pass *pass)
{
    int64_t n = pass->n_parts, k = pass->part;
    if (n <= 1)
        return total;
    /* total * (k + 1) / n - total * k / n, without the large product. */
    int64_t whole = total / n, rest = total % n;
    return whole + rest * (k + 1) / n - rest * k / n;
}

/* Frees a verdict; ignores NULL. */
void lh_verdict_free(lh_verdict *verdict)
{
    if (verdict)
        lhi_arena_free(verdict->mem);
}

bool lh_verdict_valid(const lh_verdict *verdict)
{
    return verdict->total == 0;
}

uint32_t lh_verdict_n_violations(const lh_verdict *verdict, uint64_t *total)
{
    if (total)
        *total = verdict->total;
    return verdict->n_kept;
}

const char *lh_verdict_violation(const lh_verdict *verdict, uint32_t i)
{
    return verdict->texts[i];
}

int64_t lh_verdict_makespan(const lh_verdict *verdict)
{
    return verdict->makespan_ns;
}

int64_t lh_verdict_peak_memory(const lh_verdict *verdict, uint32_t device)
{
    return verdict->peaks[device];
}
