/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the settings that 'longhaul packets' varies. */
#include "packets_grid.h"
#include "values.h"

#include <longhaul/experimental/packets.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 4096 };

/* --- values --- */

const char *packets_get_option(packets_axis a)
{
    static const char *const names[N_PACKETS_AXES] = {
        "gbps",        "latency",      "loss",      "message",  "senders",
        "queue-pairs", "paths",        "balancing", "recovery", "fec",
        "control",     "flow-control", "traffic"};
    return names[a];
}

bool packets_parse_bytes(const char *text, double *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},       {"B", 1},         {"kB", 1e3},
                 {"KB", 1e3},   {"MB", 1e6},      {"GB", 1e9},
                 {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 0x1p30}};
    const char *rest;
    if (!cli_parse_real(text, out, &rest))
        return false;
    for (uint32_t i = 0; i < CLI_COUNT_OF(units); i++)
        if (strcmp(rest, units[i].name) == 0) {
            *out *= units[i].bytes;
            return *out >= 1 && *out <= 1e12;
        }
    return false;
}

/* Parses a share of at most 0.5, such as 1e-4 or 0.01%, into *out; false:
 * invalid. */
static bool parse_share(const char *text, double *out)
{
    const char *rest;
    if (!cli_parse_real(text, out, &rest))
        return false;
    if (strcmp(rest, "%") == 0)
        *out /= 100;
    else if (*rest != '\0')
        return false;
    return *out <= 0.5;
}

/* Finds `text` in the NULL-terminated list `words`; *out is its index. Returns
 * false if it is not in the list. */
static bool parse_word(const char *text, const char *const *words, double *out)
{
    for (uint32_t i = 0; words[i]; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* Parses a forward error correction code, "DATA+PARITY" in packets, into *out
 * as DATA * 256 + PARITY; "none" into 0. Returns false if the text is invalid.
 * */
static bool parse_fec(const char *text, double *out)
{
    char *plus;
    *out = 0;
    if (strcmp(text, "none") == 0)
        return true;
    unsigned long data = strtoul(text, &plus, 10);
    if (*plus != '+' || data < 1 || data > 255)
        return false;
    uint64_t parity;
    if (!cli_parse_count(plus + 1, 1, 64, &parity))
        return false;
    *out = (double)(data * 256 + parity);
    return true;
}

const char *const packets_balancings[] = {"ecmp", "spray", "adaptive", NULL};
const char *const packets_recoveries[] = {"selective-repeat", "go-back-n",
                                          NULL};
const char *const packets_flow_controls[] = {"none", "pfc", NULL};

/* Parses a congestion control's name into *out; false: there is none of that
 * name. */
static bool parse_control(const char *text, double *out)
{
    for (int i = 0; i < LH_N_CONTROLS; i++)
        if (strcmp(text, lh_packet_control_name((lh_packet_control)i)) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* Parses a traffic's name into *out; false: there is none of that name. */
static bool parse_traffic(const char *text, double *out)
{
    for (int i = 0; i < LH_N_TRAFFICS; i++)
        if (strcmp(text, lh_packet_traffic_name((lh_packet_traffic)i)) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* Parses one value of axis `a` (a link setting of the packet simulation) into
 * *out, in the setting's unit. Returns false if the text is invalid. */
static bool parse_value(packets_axis a, const char *text, double *out)
{
    uint64_t count;
    int64_t ns;
    const char *rest;
    switch (a) {
    case PACKETS_GBPS:
        return cli_parse_real(text, out, &rest) && *rest == '\0' && *out > 0 &&
               *out <= 1e6;
    case PACKETS_LATENCY:
        if (!cli_parse_time(text, &ns) || ns > INT64_C(10000000000))
            return false;
        *out = (double)ns;
        return true;
    case PACKETS_LOSS:
        return parse_share(text, out);
    case PACKETS_MESSAGE:
        return packets_parse_bytes(text, out);
    case PACKETS_SENDERS:
    case PACKETS_QUEUE_PAIRS:
    case PACKETS_PATHS:
        if (!cli_parse_count(text, 1, 4096, &count))
            return false;
        *out = (double)count;
        return true;
    case PACKETS_BALANCING:
        return parse_word(text, packets_balancings, out);
    case PACKETS_RECOVERY:
        return parse_word(text, packets_recoveries, out);
    case PACKETS_FEC:
        return parse_fec(text, out);
    case PACKETS_CONTROL:
        return parse_control(text, out);
    case PACKETS_FLOW_CONTROL:
        return parse_word(text, packets_flow_controls, out);
    default:
        return parse_traffic(text, out);
    }
}

/* Returns the default text for axis `a` (a link setting); NULL: the option is
 * required. */
static const char *get_default(packets_axis a)
{
    static const char *const defaults[N_PACKETS_AXES] = {
        NULL,      NULL,   "0",
        "64MiB",   "1",    "1",
        "1",       "ecmp", "selective-repeat",
        "none",    "none", "none",
        "messages"};
    return defaults[a];
}

/* Parses the comma-separated values of axis `a` (a link setting) into `g`; uses
 * the default if the option is not given. */
static lh_status parse_axis(cli *c, const char *text, packets_axis a,
                            packets_grid *g)
{
    char word[64];
    if (!text)
        text = get_default(a);
    g->texts[a] = text;
    if (!text)
        return cli_usage(c, "--%s is required without a plan",
                         packets_get_option(a));
    for (;;) {
        size_t len = strcspn(text, ",");
        if (len >= sizeof word)
            len = sizeof word - 1;
        memcpy(word, text, len);
        word[len] = '\0';
        if (g->n[a] == PACKETS_MOST_VALUES)
            return cli_usage(c, "--%s: at most %d values",
                             packets_get_option(a), (int)PACKETS_MOST_VALUES);
        if (!parse_value(a, word, &g->values[a][g->n[a]++]))
            return cli_usage(c, "--%s: '%s' is not a value such as %s",
                             packets_get_option(a), word,
                             cli_find_option(c->command, packets_get_option(a))
                                 ->example_argument);
        text += strcspn(text, ",");
        if (*text == '\0')
            return LH_OK;
        text++;
    }
}

lh_status packets_parse_grid(cli *c, const char *const *texts, packets_grid *g)
{
    uint64_t n = 1;
    for (uint32_t a = 0; a < N_PACKETS_AXES; a++) {
        CLI_TRY(parse_axis(c, texts[a], (packets_axis)a, g));
        n *= g->n[a];
        if (n > MOST_ROWS)
            return cli_usage(c, "the values have more than %d combinations",
                             (int)MOST_ROWS);
    }
    g->n_rows = (uint32_t)n;
    return LH_OK;
}

/* Returns the index among axis `a`'s values of the one in table row `row` (a
 * combination of values); the last axis varies fastest. */
static uint32_t get_index(const packets_grid *g, uint32_t row, packets_axis a)
{
    for (uint32_t k = N_PACKETS_AXES - 1; k > a; k--)
        row /= g->n[k];
    return row % g->n[a];
}

double packets_get_value(const packets_grid *g, uint32_t row, packets_axis a)
{
    return g->values[a][get_index(g, row, a)];
}

const char *packets_get_text(const packets_grid *g, uint32_t row,
                             packets_axis a, char *buffer, size_t size)
{
    const char *text = g->texts[a];
    for (uint32_t i = get_index(g, row, a); i > 0; i--)
        text += strcspn(text, ",") + 1;
    size_t len = strcspn(text, ",");
    if (len >= size)
        len = size - 1;
    memcpy(buffer, text, len);
    buffer[len] = '\0';
    return buffer;
}

lh_status packets_print_failed_row(cli *c, const packets_grid *g, uint32_t row)
{
    char text[64], names[512] = "";
    size_t len = 0;
    for (uint32_t a = 0; a < N_PACKETS_AXES; a++)
        if (g->n[a] > 1 && len < sizeof names)
            len += (size_t)snprintf(
                names + len, sizeof names - len, " %s %s",
                packets_get_option((packets_axis)a),
                packets_get_text(g, row, (packets_axis)a, text, sizeof text));
    const lh_error cause = c->err;
    if (row == 0)
        return cli_error(c, LH_EINPUT, "row 1 of %" PRIu32 "%s: %s", g->n_rows,
                         names, cause.text);
    cli_note(c,
             "error: row %" PRIu32 " of %" PRIu32 "%s: %s; rows in the "
             "results: %" PRIu32,
             row + 1, g->n_rows, names, cause.text, row);
    c->exit_code = EXIT_FAILED;
    return LH_OK;
}
