/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the chart of a run's iterations with their slow elements. */
#include "event_timeline_view.h"

#include <stdlib.h>
#include <string.h>

char *cli_slow_text(const lh_event_timeline *timeline, uint32_t state,
                    char *text)
{
    enum { SHOWN = 4 };
    const char *names[SHOWN];
    uint32_t n =
        lh_event_timeline_slow_components(timeline, state, names, SHOWN);
    size_t len =
        (size_t)snprintf(text, CLI_SLOW_TEXT, "%s", n ? "" : "nothing");
    for (uint32_t i = 0; i < n && len < CLI_SLOW_TEXT; i++) {
        const char *name = i < SHOWN ? names[i] : "";
        size_t room = CLI_SLOW_TEXT - len;
        if (i == SHOWN || strlen(name) + 6 > room) {
            snprintf(text + len, room, ", ...");
            break;
        }
        len += (size_t)snprintf(text + len, room, "%s%s", i ? ", " : "", name);
    }
    return text;
}

/* Returns the end (exclusive, at most `end`) of the iterations from `from` on
 * that have the same slow links and devices as iteration `from`. */
static uint64_t find_state_end(const lh_event_timeline *timeline, uint64_t from,
                               uint64_t end)
{
    uint64_t at = from;
    const uint32_t state = lh_event_timeline_state(timeline, from);
    while (at < end && lh_event_timeline_state(timeline, at) == state)
        at++;
    return at;
}

lh_status cli_find_slow_spans(cli *c, const lh_event_timeline *timeline,
                              uint64_t first, uint64_t n, cli_slow_spans *out)
{
    uint32_t room = 0;
    const uint64_t end = first + n;
    for (uint64_t at = first; timeline && at < end;) {
        room += lh_event_timeline_state(timeline, at) != 0;
        at = find_state_end(timeline, at, end);
    }
    *out =
        (cli_slow_spans){.all = calloc(room + (size_t)1, sizeof *out->all),
                         .names = calloc(room + (size_t)1, sizeof *out->names)};
    if (!out->all || !out->names)
        return cli_no_memory(c);
    for (uint64_t at = first, next; timeline && at < end; at = next) {
        const uint32_t state = lh_event_timeline_state(timeline, at);
        next = find_state_end(timeline, at, end);
        if (state == 0)
            continue;
        char *name = out->names[out->n].text;
        cli_slow_text(timeline, state, name);
        out->all[out->n++] = (lh_report_span){at, next, name};
    }
    return LH_OK;
}

void cli_slow_spans_fini(cli_slow_spans *spans)
{
    free(spans->all);
    free(spans->names);
}

lh_status cli_write_event_timeline(cli *c,
                                   const lh_report_iterations *iterations,
                                   const char *path)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_report_iterations_svg(iterations, NULL, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}
