/* SPDX-License-Identifier: Apache-2.0 */
#include "sweep.h"
#include "values.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const cli_axis_names[] = {"latency", "transfer", NULL};

/* --- parsing ------------------------------------------------------------ */

/* Fails with a usage error: --sweep has an invalid value. */
static lh_status fail_value(cli *c, const char *text)
{
    return cli_usage(c,
                     "--sweep: '%.40s' is not a value such as 0.5 or 5ms, nor "
                     "a range such as 0:2:0.25 or 0ms:40ms:5ms",
                     text);
}

/* Appends a value to a sweep axis (link latency or transfer time); fails if
 * there are more than CLI_MOST_VALUES. */
static lh_status add_value(cli *c, cli_axis *axis, double value)
{
    if (axis->delays.n_values >= CLI_MOST_VALUES)
        return cli_usage(c, "--sweep: more than %d values; use larger steps",
                         CLI_MOST_VALUES);
    axis->values[axis->delays.n_values++] = value;
    return LH_OK;
}

/* Checks that all values of a sweep axis have a unit or all have none
 * (multiples of the forward time); 0 fits both. */
static lh_status check_unit(cli *c, cli_axis *axis, cli_number n)
{
    if (n.value == 0)
        return LH_OK; /* 0 has every unit */
    if (axis->unit_fixed && axis->delays.relative == n.timed)
        return cli_usage(c, "--sweep: values with and without a unit cannot be "
                            "mixed for one quantity");
    axis->delays.relative = !n.timed;
    axis->unit_fixed = true;
    return LH_OK;
}

/* Parses a value or range of a --sweep axis and appends its numbers to the
 * axis; *text is advanced to the rest. */
static lh_status add_values(cli *c, const char **text, cli_axis *axis)
{
    const char *whole = *text;
    cli_range range;
    if (!cli_parse_range(text, &range))
        return fail_value(c, whole);
    for (uint32_t i = 0; i < range.n_numbers; i++)
        CLI_TRY(check_unit(c, axis, range.number[i]));
    double n = cli_range_count(&range);
    if (n < 1)
        return cli_reject_empty_range(c, "sweep", whole);
    for (double i = 0; i < n; i++)
        CLI_TRY(add_value(c, axis, cli_range_at(&range, i)));
    return LH_OK;
}

/* Parses an axis name, `latency=` or `transfer=`, and advances *text; false if
 * there is none. */
static bool parse_name(const char **text, cli_axis_kind *out)
{
    for (uint32_t i = 0; i < CLI_N_AXES; i++) {
        size_t len = strlen(cli_axis_names[i]);
        if (strncmp(*text, cli_axis_names[i], len) == 0 &&
            (*text)[len] == '=') {
            *out = (cli_axis_kind)i;
            *text += len + 1;
            return true;
        }
    }
    return false;
}

lh_status cli_sweep_parse(cli *c, const char *text, cli_sweep *out)
{
    *out = (cli_sweep){0};
    for (uint32_t i = 0; i < CLI_N_AXES; i++) {
        out->axes[i].values = calloc(CLI_MOST_VALUES, sizeof(double));
        if (!out->axes[i].values)
            return cli_no_memory(c);
        out->axes[i].delays = (lh_compare_delays){.values = out->axes[i].values,
                                                  .relative = true};
    }
    cli_axis *axis = NULL;
    for (const char *p = text;; p++) {
        cli_axis_kind kind;
        if (parse_name(&p, &kind)) {
            axis = &out->axes[kind];
            if (axis->delays.n_values)
                return cli_usage(c, "--sweep: %s is given twice",
                                 cli_axis_names[kind]);
        } else if (!axis || strpbrk(p, ",=") != strchr(p, ',')) {
            return cli_usage(c,
                             "--sweep: '%.40s' does not begin with latency= "
                             "or transfer=",
                             p);
        }
        CLI_TRY(add_values(c, &p, axis));
        if (!*p)
            break;
    }
    uint64_t points = 1;
    for (uint32_t i = 0; i < CLI_N_AXES; i++)
        if (out->axes[i].delays.n_values)
            points *= out->axes[i].delays.n_values;
    if (points > CLI_MOST_POINTS)
        return cli_usage(c, "--sweep: %" PRIu64 " points; at most %d", points,
                         CLI_MOST_POINTS);
    return LH_OK;
}

void cli_sweep_fini(cli_sweep *sweep)
{
    for (uint32_t i = 0; i < CLI_N_AXES; i++)
        free(sweep->axes[i].values);
    *sweep = (cli_sweep){0};
}

/* --- values ------------------------------------------------------------- */

char *cli_axis_text(const cli_axis *axis, uint32_t i, char *buffer)
{
    if (axis->delays.relative)
        snprintf(buffer, CLI_TIME_TEXT, "%.6g", axis->values[i]);
    else
        cli_time_text((int64_t)llround(axis->values[i]), buffer);
    return buffer;
}
