/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "optimal.h"
#include "problem.h"
#include "values.h"

#include <longhaul/experimental/certificate.h>
#include <string.h>
#include <unistd.h>

lh_status cli_check_engines(cli *c, const cli_search *search)
{
    const char *names[LH_MAX_SOLVE_ENGINES + 1] = {0};
    const char *at = search->without;
    const uint32_t n = lh_n_solve_engines();
    for (uint32_t i = 0; i < n; i++)
        names[i] = lh_solve_engine_name(i);
    while (at) {
        char name[60] = "";
        const size_t len = strcspn(at, ",");
        const bool is_known = lh_solve_engine_find(at, len) < n;
        memcpy(name, at, len < sizeof name ? len : sizeof name - 1);
        const char *near = is_known ? NULL : cli_find_similar_word(name, names);
        if (near)
            return cli_usage(c,
                             "--without: unknown engine '%s'; did you mean %s?",
                             name, near);
        if (!is_known)
            return cli_usage(c,
                             "--without: unknown engine '%s'; see Engines in "
                             "'longhaul schedule --help'",
                             name);
        at = at[len] ? at + len + 1 : NULL;
    }
    return LH_OK;
}

/* Returns the online processor count, from 1 to 1024. */
static uint32_t count_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < 1024 ? (uint32_t)n : 1024;
}

bool cli_search_show(void *context, const lh_solve_progress *now)
{
    const cli *c = context;
    char best[CLI_TIME_TEXT], bound[CLI_TIME_TEXT];
    if (now->best_ns < 0)
        cli_progress(c, "%.1f s  %s", now->seconds, now->phase);
    else
        cli_progress(c, "%.1f s  best %s  bound %s  gap %.2f %%  %s",
                     now->seconds, cli_time_text(now->best_ns, best),
                     cli_time_text(now->bound_ns, bound),
                     now->bound_ns > 0
                         ? 100.0 * (double)(now->best_ns - now->bound_ns) /
                               (double)now->bound_ns
                         : 100.0,
                     now->phase);
    return cli_interrupts() > 0;
}

lh_status cli_search_options(cli *c, const cli_search *search,
                             const cli_model *model, uint32_t sub_blocks,
                             lh_solve_options *out, lh_schedule **start)
{
    uint32_t mib = search->memory_mib ? search->memory_mib : 1024;
    *out = (lh_solve_options){.size = sizeof *out,
                              .fifo = model->fifo,
                              .sub_blocks = sub_blocks,
                              .seed = c->common.seed,
                              .disabled_engines = search->without,
                              .time_limit_s = search->time_limit_s,
                              .gap = search->gap_percent / 100,
                              .effort = search->effort,
                              .memory = (size_t)mib << 20,
                              .threads = search->threads ? search->threads
                                                         : count_processors(),
                              .host_copy_ns = model->host_copy_ns,
                              .progress = cli_search_show,
                              .context = c};
    if (model->objective == CLI_FIRST_DEVICE)
        out->objective = LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    if (search->start)
        CLI_TRY(cli_read_passes(c, search->start, model->fifo, start));
    out->initial_schedule = *start;
    return LH_OK;
}

void cli_search_begin(const cli *c)
{
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
}

void cli_search_end(void)
{
    cli_interrupts_end();
    cli_progress_end();
}

lh_status cli_solve(cli *c, const cli_search *search, const cli_model *model,
                    uint32_t sub_blocks, const lh_pipeline *pipeline,
                    lh_solution *out)
{
    lh_solve_options o;
    lh_schedule *start = NULL;
    CLI_TRY(cli_search_options(c, search, model, sub_blocks, &o, &start));
    cli_search_begin(c);
    lh_status status = lh_solve(pipeline, &o, out, &c->err);
    cli_search_end();
    lh_schedule_free(start);
    return status;
}

/* Writes the certificate (proof of a lower bound) to `path`. */
static lh_status write_certificate(cli *c, const char *path,
                                   const lh_certificate *certificate)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_certificate_format(certificate, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

lh_status cli_write_certificate(cli *c, const cli_search *search,
                                const cli_model *model, uint32_t sub_blocks,
                                const lh_pipeline *pipeline,
                                const lh_solution *solution, const char **kind)
{
    lh_solve_options o;
    lh_schedule *start = NULL;
    lh_certificate *certificate = NULL;
    CLI_TRY(cli_search_options(c, search, model, sub_blocks, &o, &start));
    cli_search_begin(c);
    lh_status status =
        lh_certify(pipeline, &o, solution, &certificate, &c->err);
    cli_search_end();
    lh_schedule_free(start);
    if (status != LH_OK)
        return status;
    *kind = lh_proof_kind_name(certificate->kind);
    if (certificate->kind == LH_PROOF_NONE)
        cli_note(c, "%s contains no proof: %s", search->certificate,
                 certificate->why);
    status = write_certificate(c, search->certificate, certificate);
    lh_certificate_free(certificate);
    return status;
}
