/* SPDX-License-Identifier: Apache-2.0 */
#include "jitter_view.h"
#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Checks whether the text's first `len` bytes equal a key. */
static bool is_key(const char *text, size_t len, const char *key)
{
    return strlen(key) == len && strncmp(text, key, len) == 0;
}

/* Fails with a usage error due to an invalid --jitter part. */
static lh_status reject_spec(cli *c, const char *text)
{
    int len = (int)strcspn(text, ",");
    return cli_usage(c,
                     "--jitter: '%.*s' is not latency=A, transfer=A, "
                     "degraded=PxK or straggler=PxK with numbers",
                     len < 60 ? len : 60, text);
}

/* Parses a probability (*rate) and a factor, "0.05x3"; *rest: the text after
 * them. Returns false if the text is invalid. */
static bool read_event(const char *text, double *rate, double *factor,
                       const char **rest)
{
    const char *at;
    return cli_parse_real(text, rate, &at) && *at == 'x' &&
           cli_parse_real(at + 1, factor, rest);
}

/* Reads one KEY=VALUE part of --jitter into `out`; *rest: the text after it.
 * Fails with a usage error if it is invalid. */
static lh_status read_part(cli *c, const char *text, lh_jitter *out,
                           const char **rest)
{
    size_t len = strcspn(text, "=,");
    bool ok = text[len] == '=';
    const char *value = text + len + ok;
    if (ok && is_key(text, len, "latency"))
        ok = cli_parse_real(value, &out->latency, rest);
    else if (ok && is_key(text, len, "transfer"))
        ok = cli_parse_real(value, &out->transfer, rest);
    else if (ok && is_key(text, len, "degraded"))
        ok = read_event(value, &out->degraded_probability,
                        &out->degraded_factor, rest);
    else if (ok && is_key(text, len, "straggler"))
        ok = read_event(value, &out->straggler_probability,
                        &out->straggler_factor, rest);
    else
        ok = false;
    if (!ok || (**rest && **rest != ','))
        return reject_spec(c, text);
    return LH_OK;
}

lh_status cli_check_jitter(cli *c, const cli_jitter *given)
{
    if (!given->spec && cli_is_given(c, "samples"))
        return cli_usage(c, "--samples requires --jitter");
    return LH_OK;
}

lh_status cli_read_jitter(cli *c, const cli_jitter *given, lh_jitter *out)
{
    *out = (lh_jitter){
        .size = sizeof *out, .samples = given->samples, .seed = c->common.seed};
    const char *text = given->spec;
    for (;;) {
        CLI_TRY(read_part(c, text, out, &text));
        if (!*text)
            return lh_jitter_check(out, &c->err);
        text++;
    }
}

lh_status cli_jitter_report(cli *c, const cli_jitter_report_input *varied,
                            lh_report *report)
{
    const uint32_t n = varied->jitter->samples;
    int64_t *ns = calloc(n, sizeof *ns);
    if (!ns)
        return cli_no_memory(c);
    lh_status status =
        lh_jitter_times(varied->pipeline, varied->schedule, varied->sim,
                        varied->jitter, ns, &c->err);
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        ns[i] += varied->after_ns;
    const lh_report_distribution drawn = {.size = sizeof drawn,
                                          .title = "Iterations with jitter",
                                          .n = n,
                                          .ns = ns,
                                          .nominal_ns = varied->base_ns};
    if (status == LH_OK)
        status = lh_report_add_distribution(report, &drawn, &c->err);
    free(ns);
    return status;
}

char *cli_straggler_text(double rate, uint32_t n_gpus, char *text)
{
    *text = '\0';
    if (!(rate > 0) || rate > 1)
        return text;
    const double any = -100 * expm1(n_gpus * log1p(-rate));
    snprintf(text, CLI_STRAGGLER_TEXT,
             "a GPU is slow with probability %.3g %%; on average %.3g of the "
             "%" PRIu32 " GPUs are slow; %s%.3g %% of the iterations have a "
             "slow GPU",
             100 * rate, n_gpus * rate, n_gpus, any > 99.9 ? "over " : "",
             any > 99.9 ? 99.9 : any);
    return text;
}
