/* SPDX-License-Identifier: Apache-2.0 */
/* Describes in words which datacenters run which ranks. */
#include "view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* Text buffer with limited capacity. */
typedef struct text {
    char *buffer;
    size_t room, len;
} text;

static void append_text(text *t, const char *format, ...) CLI_PRINTF(2, 3);

/* Appends formatted text to a buffer; a text that does not fit ends with
 * '...'. */
static void append_text(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(t->buffer + t->len, t->room - t->len, format, args);
    va_end(args);
    t->len += len > 0 ? (size_t)len : 0;
    if (t->len < t->room)
        return;
    t->len = t->room - 1;
    memcpy(t->buffer + t->room - 4, "...", 4); /* too long */
}

/* Appends the datacenters that a replica group's pipeline crosses, in stage
 * order: "west>mid>east (4, 2, 2 stages)". */
static void add_pipeline(text *t, const lh_job *job, const lh_site_group *group)
{
    for (uint32_t i = 0; i < group->n_parts; i++)
        append_text(t, "%s%s", i ? ">" : "",
                    job->datacenters[group->parts[i].datacenter].name);
    for (uint32_t i = 0; group->n_parts > 1 && i < group->n_parts; i++)
        append_text(t, "%s%" PRIu32, i ? ", " : " (", group->parts[i].stages);
    if (group->n_parts > 1)
        append_text(t, " stages)");
}

char *cli_sites_text(const lh_job *job, const lh_sites *sites, char *buffer,
                     size_t room)
{
    text t = {buffer, room, 0};
    bool crosses = false;
    buffer[0] = '\0';
    for (uint32_t g = 0; g < sites->n_groups; g++)
        crosses = crosses || sites->groups[g].n_parts > 1;
    if (sites->n_groups == 1) {
        append_text(&t, "pipeline ");
        add_pipeline(&t, job, &sites->groups[0]);
        return buffer;
    }
    if (crosses)
        append_text(&t, "%" PRIu32 " groups: ", sites->n_groups);
    else
        append_text(&t, "replicas ");
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        const lh_site_group *group = &sites->groups[g];
        append_text(&t, "%s", !g ? "" : crosses ? "; " : ", ");
        if (crosses)
            append_text(&t, "%" PRIu32 " x ", group->replicas);
        add_pipeline(&t, job, group);
        if (!crosses)
            append_text(&t, " %" PRIu32, group->replicas);
    }
    return buffer;
}
