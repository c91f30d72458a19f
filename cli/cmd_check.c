/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul check: verifies a schedule independently. */
#include "commands.h"
#include "problem.h"

#include <longhaul/experimental/json_output.h>

#include <inttypes.h>

typedef struct settings {
    bool fifo;
    uint32_t buffers;
    const char *certificate, *host_memory;
} settings;

static const cli_option options[] = {
    {.name = "fifo",
     .type = CLI_FLAG,
     .at = offsetof(settings, fifo),
     .help = "Ignore the link orders of the schedule or the plan."},
    {.name = "buffers",
     .type = CLI_COUNT,
     .at = offsetof(settings, buffers),
     .arg = "N",
     .least = 0,
     .most = 1 << 20,
     .help = "Messages that the transport buffers per pair of devices before a "
             "send waits for its receive (default: 0)."},
    CLI_HOST_MEMORY_ROW(settings,
                        "A device may then exceed its limit; the host memory "
                        "used is printed."),
    {.name = "certificate",
     .type = CLI_TEXT,
     .at = offsetof(settings, certificate),
     .arg = "FILE",
     .help = "Also verify this optimality certificate.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul check pipeline.yaml s.csv",
     "Check whether s.csv is valid for this pipeline; list the violations."},
    {"longhaul check plan.json", "Check the schedule of a plan."},
    {"longhaul check pipeline.yaml s.csv --json | jq .violations",
     "Print the violations as JSON."},
    {"longhaul check pipeline.yaml s.csv --certificate proof.json",
     "Also verify the proof that s.csv is optimal, statement by statement."},
};

/* Inputs and verification results. */
typedef struct work {
    cli_problem problem;
    const lh_pipeline *pipeline; /* owned by the problem */
    lh_schedule *schedule;
    lh_verdict *verdict;
    lh_certificate *certificate;
    lh_claims *claims; /* NULL: no certificate */
} work;

/* Prints the certificate's verdict and one line per statement. */
static void print_claims(cli *c, const work *w)
{
    cli_print(c, "certificate: %s\n",
              lh_claim_status_name(lh_claims_verdict(w->claims)));
    for (uint32_t i = 0; i < lh_n_claims(w->claims); i++)
        cli_print(c, "  %-13s %s\n",
                  lh_claim_status_name(lh_claims_status(w->claims, i)),
                  lh_claims_text(w->claims, i));
}

/* Returns `device`'s peak memory in the verdict `of`, in the pipeline's unit
 * (bytes or model units); callback for cli_host_memory_text(). */
static int64_t certified_peak(const void *of, uint32_t device)
{
    return lh_verdict_peak_memory(of, device);
}

/* Prints violations, makespan, peak memory and certificate statements as
 * JSON. */
static lh_status print_json(cli *c, const work *w)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_verdict_format(w->verdict, w->pipeline, w->certificate,
                              w->claims, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Prints, as text, that the schedule is valid and how long it takes, or all its
 * violations. */
static void print_text(cli *c, const work *w)
{
    char time[CLI_TIME_TEXT], hosted[CLI_HOST_MEMORY_TEXT];
    uint64_t total;
    uint32_t kept = lh_verdict_n_violations(w->verdict, &total);
    if (lh_verdict_valid(w->verdict)) {
        cli_print(c, "valid: %s takes %s\n",
                  c->n_operands > 1 ? c->operands[1] : "the plan's schedule",
                  cli_time_text(lh_verdict_makespan(w->verdict), time));
        if (lh_pipeline_has_host(w->pipeline))
            cli_print(c, "host memory: %s\n",
                      cli_host_memory_text(w->pipeline, certified_peak,
                                           w->verdict, hosted));
        return;
    }
    cli_print(c, "not valid: %" PRIu64 " violation%s\n", total,
              total == 1 ? "" : "s");
    for (uint32_t i = 0; i < kept; i++)
        cli_print(c, "  %s\n", lh_verdict_violation(w->verdict, i));
    if (total > kept)
        cli_print(c, "  and %" PRIu64 " more\n", total - kept);
}

/* Reads and checks the certificate; sets the exit code unless every statement
 * is verified. */
static lh_status verify_certificate(cli *c, work *w)
{
    const settings *s = c->settings;
    CLI_TRY(lh_certificate_read(s->certificate, &w->certificate, &c->err));
    cli_progress(c, "checking the certificate");
    lh_status status = lh_check_certificate(
        w->pipeline, w->schedule, w->certificate, &w->claims, &c->err);
    cli_progress_end();
    if (status == LH_OK && lh_claims_verdict(w->claims) != LH_CLAIM_VERIFIED)
        c->exit_code = EXIT_FAILED;
    return status;
}

/* Reads the pipeline or plan and the schedule, checks them, and checks the
 * certificate if one is given. */
static lh_status verify(cli *c, work *w)
{
    const settings *s = c->settings;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, &w->problem));
    CLI_TRY(cli_problem_add_host_memory(c, s->host_memory, &w->problem));
    w->pipeline = cli_problem_pipeline(&w->problem);
    if (c->n_operands > 1)
        CLI_TRY(cli_read_schedule(c, c->operands[1], s->fifo, &w->schedule));
    else if (w->problem.plan)
        CLI_TRY(lh_schedule_copy(w->problem.plan->schedule, !s->fifo,
                                 &w->schedule, &c->err));
    else
        return cli_usage(c, "SCHEDULE is required for a pipeline, which "
                            "contains no schedule");
    CLI_TRY(lh_check_buffered(w->pipeline, w->schedule, s->buffers, &w->verdict,
                              &c->err));
    c->exit_code = lh_verdict_valid(w->verdict) ? EXIT_OK : EXIT_FAILED;
    if (s->certificate)
        CLI_TRY(verify_certificate(c, w));
    if (c->common.json)
        return print_json(c, w);
    print_text(c, w);
    if (w->claims)
        print_claims(c, w);
    return LH_OK;
}

/* Runs 'longhaul check' and frees its results. */
static lh_status run_check(cli *c)
{
    work w = {0};
    lh_status status = verify(c, &w);
    lh_claims_free(w.claims);
    lh_certificate_free(w.certificate);
    lh_verdict_free(w.verdict);
    lh_schedule_free(w.schedule);
    cli_problem_fini(&w.problem);
    return status;
}

const cli_command cmd_check = {
    .name = "check",
    .operands = "PIPELINE|PLAN [SCHEDULE]",
    .least_operands = 1,
    .most_operands = 2,
    .operand_words = CLI_WORDS_FILES,
    .about = "Check whether a schedule is valid for a pipeline",
    .description =
        "Checks the schedule of a plan on the plan's pipeline, or another "
        "SCHEDULE: a CSV file, or a plan that contains one.\n"
        "\n"
        "Checks that every pass runs once and on its device, split passes are "
        "complete, forwards precede backwards, memory stays within its limits, "
        "link orders are complete, and there is no deadlock. The checker "
        "shares no code with the schedulers and the simulator.\n"
        "\n"
        "If the schedule has SEND and RECV cells, as PyTorch's and those of "
        "'export --form compute_comms', it checks them too: every message has "
        "one of each, after the pass that produces it and before the pass that "
        "needs it; both devices of a pair have their messages in one order; "
        "and the rows do not deadlock if a send waits for its receive, as in "
        "NCCL. If they do, it prints the number of --buffers with which they "
        "run. UNSHARD, RESHARD, REDUCE_GRAD and WAIT cells must be at valid "
        "positions.\n"
        "\n"
        "With --certificate it also verifies the proof of optimality: that the "
        "proof is for this pipeline and this schedule, and that each statement "
        "of the bound holds, recomputed independently. A statement is "
        "verified, not verified (outside the checker's methods), or wrong.\n"
        "\n"
        "The exit status is 0 if the schedule is valid and, with "
        "--certificate, every statement is verified; otherwise 1. At most the "
        "first 100 violations are listed.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_check,
};
