/* SPDX-License-Identifier: Apache-2.0 */
#include "planwhy.h"

#include "view.h"

#include <inttypes.h>
#include <string.h>

void cli_plan_account(cli *c, const lh_plan *p)
{
    const lh_plan_account *a = p->account;
    if (!a)
        return;
    const struct {
        const char *name;
        int64_t ns;
    } parts[] = {{"compute", a->compute_ns},
                 {"sent within passes", a->inside_ns},
                 {"uneven devices", a->imbalance_ns},
                 {"bubble", a->bubble_ns},
                 {"exposed messages", a->messages_ns},
                 {"exposed data parallelism", a->data_ns},
                 {"want of memory", a->memory_ns},
                 {"optimizer and overhead", a->optimizer_ns + a->overhead_ns}};
    size_t column = 14;
    const char *comma = "made of       ";
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char text[60];
        if (parts[i].ns < 500000 && i > 0)
            continue;
        int len = snprintf(text, sizeof text, "%s %.3f s", parts[i].name,
                           (double)parts[i].ns / 1e9);
        if (column + (size_t)len + 3 > cli_width()) {
            comma = ",\n              ";
            column = 14;
        }
        fprintf(c->out, "%s%s", comma, text);
        column += (size_t)len + 2;
        comma = ", ";
    }
    fputc('\n', c->out);
}

/* Of a dimension that is a number, the number. */
static uint32_t degree_of(const lh_plan_runner *r)
{
    const lh_layout *l = &r->choice.layout;
    const struct {
        const char *name;
        uint32_t value;
    } all[] = {{"tensor", l->tensor},
               {"context", l->context},
               {"expert", l->expert},
               {"pipeline", l->pipeline},
               {"data", l->data},
               {"micro_batch", l->micro_batch},
               {"chunks_per_device", l->chunks_per_device}};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(r->dimension, all[i].name) == 0)
            return all[i].value;
    return 0;
}

void cli_plan_runners(cli *c, const lh_plan *p)
{
    if (p->n_runners)
        fprintf(c->out, "\nThe best with another\n");
    for (uint32_t i = 0; i < p->n_runners; i++) {
        const lh_plan_runner *r = &p->runners[i];
        char name[60], layout[120];
        if (degree_of(r))
            snprintf(name, sizeof name, "%s, %" PRIu32, r->dimension,
                     degree_of(r));
        else
            snprintf(name, sizeof name, "%s", r->dimension);
        fprintf(c->out, "  %-20s  %s\n%24s%s %s  %s\n", name, r->choice.why, "",
                r->choice.layout.schedule ? r->choice.layout.schedule
                                          : "any schedule",
                lh_placement_name(r->choice.placement),
                cli_layout_text(&r->choice, layout, sizeof layout));
    }
}

/* "a; b; c", a line each where it is too long for one. */
static void print_why(cli *c, const char *name, const char *why)
{
    fprintf(c->out, "    %-18s  ", name);
    bool whole = strlen(why) + 24 <= cli_width();
    for (; *why; why++)
        if (*why == ';' && !whole)
            fprintf(c->out, "\n%23s", "");
        else
            fputc(*why, c->out);
    fputc('\n', c->out);
}

static bool same_advice(const lh_link_advice *a, const lh_link_advice *b)
{
    bool same = a->messages == b->messages && a->data_bytes == b->data_bytes &&
                a->n_questions == b->n_questions;
    for (uint32_t k = 0; same && k < a->n_questions; k++)
        same = strcmp(a->questions[k].why, b->questions[k].why) == 0;
    return same;
}

static void print_link(cli *c, const lh_link_advice *a)
{
    fprintf(c->out, "  %s to %s: ", a->from, a->to);
    if (a->messages)
        fprintf(c->out, "%" PRIu64 " messages of %.1f MB", a->messages,
                (double)a->message_bytes / 1e6);
    if (a->data_bytes)
        fprintf(c->out, "%s%.1f GB of data parallelism",
                a->messages ? ", " : "", (double)a->data_bytes / 1e9);
    fprintf(c->out, "%s\n",
            a->measured ? "; as measured, whatever it is set to" : "");
    for (uint32_t k = 0; k < a->n_questions; k++)
        print_why(c, lh_advice_topic_name(a->questions[k].topic),
                  a->questions[k].why);
}

void cli_plan_network(cli *c, const lh_plan *p)
{
    if (!p->n_network)
        return;
    fprintf(c->out, "\nNetwork\n");
    for (uint32_t i = 0; i < p->n_network; i++) {
        const lh_link_advice *a = &p->network[i];
        uint32_t k = 0;
        while (k < i && !same_advice(&p->network[k], a))
            k++;
        if (k < i)
            fprintf(c->out, "  %s to %s: as %s to %s\n", a->from, a->to,
                    p->network[k].from, p->network[k].to);
        else
            print_link(c, a);
    }
    if (p->network_ns >= 0)
        fprintf(c->out, "  iteration with all of it  %.3f s (%+.2f %%)\n",
                (double)p->network_ns / 1e9,
                100 *
                    ((double)p->network_ns / (double)p->best.iteration_ns - 1));
}
