/* SPDX-License-Identifier: Apache-2.0 */
/* A run is killed at each call of a save, or the call fails. The old or the new
 * checkpoint must be intact, and the next run must succeed. Also checks the
 * order of syncs. */
#define _GNU_SOURCE /* mkdtemp */
#include "fail_call.h"
#include "sanitized.h"
#include "training_ranks.h"

#include <dirent.h>
#include <sys/wait.h>

static char folder[] = "/tmp/lh-crash-XXXXXX";
static team before, after; /* one step, two steps */
static team reader;

/* Initial state and missing file system features. */
typedef struct scenario {
    const char *name;
    bool replaces; /* the step exists with other values */
    bool is_stale; /* a lock of a dead run exists */
    bool no_exchange, no_flock, no_link;
    uint32_t keep;
} scenario;

static const scenario scenarios[] = {
    {.name = "one more, after a run that was killed",
     .is_stale = true,
     .keep = 1},
    {.name = "in the place of another", .replaces = true},
    {.name = "... where names cannot be exchanged",
     .replaces = true,
     .no_exchange = true},
    {.name = "after a run that was killed, without flock and hard links",
     .is_stale = true,
     .no_link = true,
     .no_flock = true},
};
enum { N_SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void set_lacks(const scenario *s)
{
    lacks_flock = s && s->no_flock;
    lacks_link = s && s->no_link;
    lacks_exchange = s && s->no_exchange;
}

/* Hashes all values, as stored in a checkpoint. */
static uint64_t sum_of(team *t)
{
    uint64_t hash = 1469598103934665603u; /* FNV-1a, on words */
    for (uint32_t i = 0; small_tensor(&t->s[0], i); i++) {
        const lhi_tensor *x = small_tensor(&t->s[0], i);
        for (size_t j = 0; j < x->n; j++) {
            uint32_t bits;
            memcpy(&bits, &x->value[j], sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
    }
    return hash;
}

static lhi_checkpoint_options options_of(const scenario *s)
{
    return (lhi_checkpoint_options){.folder = folder,
                                    .keep = s->keep,
                                    .recipe = team_recipe(),
                                    .sequence = 21};
}

static void change_value(void)
{
    float *value = small_tensor(&after.s[0], 0)->value;
    *value = -*value;
}

static void empty_folder(const char *path)
{
    DIR *all = opendir(path);
    struct dirent *entry;
    while (all && (entry = readdir(all))) {
        char inner[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (unlink(inner) == 0)
            continue;
        empty_folder(inner);
        rmdir(inner);
    }
    closedir(all);
}

/* Creates the initial checkpoint folder; returns the hash of its values. */
static uint64_t make_folder(const scenario *s)
{
    const lhi_checkpoint_options o = options_of(s);
    uint64_t sum = sum_of(&before);
    empty_folder(folder);
    if (s->replaces) {
        change_value();
        sum = sum_of(&after);
        save_all(&after, &o);
        change_value();
    } else {
        save_all(&before, &o);
    }
    if (s->is_stale) {
        lh_error err;
        lhi_folder_lock *lock;
        pid_t child = fork();
        if (child == 0)
            _exit(lhi_folder_lock_take(folder, NULL, &lock, &err) != LH_OK);
        int how;
        CHECK_INT(waitpid(child, &how, 0), child);
        CHECK_INT(how, 0);
        CHECK(is_there(folder, ".longhaul-lock"));
    }
    return sum;
}

/* Saves as a run does, with one thread for all ranks. */
static lh_status save_parts(lhi_checkpoint_options *o, double *all, double *one,
                            lh_error *err)
{
    size_t n = lhi_train_count_checksums(after.t[0][0]);
    LHI_TRY(lhi_checkpoint_remove_stale(folder, err));
    LHI_TRY(lhi_train_save_begin(after.t[0][0], o, err));
    memset(all, 0, n * sizeof *all);
    for (uint32_t r = 0; r < after.n_replicas; r++)
        for (uint32_t d = 0; d < after.n_devices; d++) {
            LHI_TRY(lhi_train_save_part(after.t[r][d], o, one, err));
            for (size_t i = 0; i < n; i++)
                all[i] += one[i];
        }
    return lhi_train_save_end(after.t[0][0], o, all, err);
}

static lh_status whole_run(const scenario *s, lh_error *err)
{
    static double all[4096], one[4096];
    lhi_checkpoint_options o = options_of(s);
    CHECK(lhi_train_count_checksums(after.t[0][0]) <= 4096);
    LHI_TRY(lhi_folder_lock_take(folder, NULL, &o.lock, err));
    lh_status status = save_parts(&o, all, one, err);
    if (status != LH_OK)
        lhi_train_save_cancel(after.t[0][0], &o);
    lhi_folder_lock_release(o.lock);
    return status;
}

/* Checks that only checkpoints with these files exist. */
static void check_names(const char *path, const char *what)
{
    static const char *const files[] = {
        "config.json", "model.safetensors", "optimizer.safetensors",
        "state.json",  ".longhaul-lock",    NULL};
    DIR *all = opendir(path);
    struct dirent *entry;
    while (all && (entry = readdir(all))) {
        const char *name = entry->d_name;
        char inner[300];
        size_t i = 0;
        while (files[i] && strcmp(files[i], name) != 0)
            i++;
        if (files[i] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        CHECK_MSG(strncmp(name, "step-", 5) == 0, "%s: left: %s", what, name);
        snprintf(inner, sizeof inner, "%s/%s", path, name);
        check_names(inner, what);
    }
    closedir(all);
}

/* Checks that every checkpoint is intact and equals the old or the new one;
 * returns whether the new one exists. */
static bool check_checkpoints(uint64_t old, const char *what)
{
    const lhi_checkpoint_options o = {.folder = folder,
                                      .recipe = team_recipe()};
    lh_error err;
    uint64_t *steps;
    size_t n = 0;
    lhi_load_result loaded;
    bool is_new = false;
    CHECK_OK(lhi_train_find(folder, &steps, &n, &err), err);
    CHECK_MSG(n > 0, "%s: nothing is left", what);
    for (size_t i = 0; i < n; i++) {
        CHECK_MSG(lhi_train_load_one(reader.t[0][0], folder, &steps[i], &o,
                                     NULL, &loaded, &err) == LH_OK,
                  "%s: step %d: %s", what, (int)steps[i], err.text);
        uint64_t sum = sum_of(&reader);
        CHECK_MSG(sum == old || sum == sum_of(&after), "%s: other values",
                  what);
        CHECK_INT(lhi_train_step(reader.t[0][0]), steps[i]);
        is_new = sum == sum_of(&after);
    }
    free(steps);
    return is_new;
}

/* Without flock, a process killed while it takes a lock over leaves two names.
 * The user has to remove them, as the error says. */
static void remove_locks(const lh_error *err)
{
    char command[256];
    CHECK_HAS(err->text,
              "remove it and the files whose names begin with its name");
    snprintf(command, sizeof command, "rm -r '%s'/.longhaul-lock*", folder);
    CHECK_INT(system(command), 0);
}

/* The next run: finds an intact checkpoint, removes the last run's leftovers,
 * and saves if asked, because saving is slow. */
static void go_on(const scenario *s, uint64_t old, bool must_be_new,
                  bool saves_again, const char *what)
{
    lh_error err;
    lhi_folder_lock *lock = NULL;
    lh_status status = lhi_folder_lock_take(folder, NULL, &lock, &err);
    if (status != LH_OK && s->no_flock) {
        remove_locks(&err);
        status = lhi_folder_lock_take(folder, NULL, &lock, &err);
    }
    CHECK_MSG(status == LH_OK, "%s: %s", what, err.text);
    CHECK_OK(lhi_checkpoint_remove_stale(folder, &err), err);
    check_names(folder, what);
    bool is_new = check_checkpoints(old, what);
    CHECK_MSG(is_new || !must_be_new, "%s: it was not written", what);
    lhi_folder_lock_release(lock);
    if (!saves_again)
        return;
    CHECK_OK(whole_run(s, &err), err);
    CHECK_MSG(check_checkpoints(old, what), "%s: not written again", what);
    CHECK(!is_there(folder, ".longhaul-lock"));
    check_names(folder, what);
}

enum { SAVED, REFUSED, NOT_REACHED };

/* Runs with a failure at one call; returns the outcome. */
static int run_struck(const scenario *s, fail_how how, long at)
{
    fail_call_begin(how, at);
    lh_status status = whole_run(s, NULL);
    fail_call_end();
    return !fail_call.hit ? NOT_REACHED : status == LH_OK ? SAVED : REFUSED;
}

/* Removes locks that the surviving process could not remove: its own pid would
 * look alive. */
static void remove_own_locks(void)
{
    DIR *all = opendir(folder);
    struct dirent *entry;
    while (all && (entry = readdir(all)))
        if (strncmp(entry->d_name, ".longhaul-lock", 14) == 0)
            unlinkat(dirfd(all), entry->d_name, 0);
    closedir(all);
}

/* Does the same in a child process, which may be killed. */
static int run_apart(const scenario *s, fail_how how, long at, const char *what)
{
    int ended;
    pid_t child = fork();
    if (child == 0)
        _exit(run_struck(s, how, at));
    CHECK_INT(waitpid(child, &ended, 0), child);
    int code = WEXITSTATUS(ended);
    CHECK_MSG(WIFEXITED(ended) && (code == CRASHED || code == NOT_REACHED),
              "%s: ended with %d", what, ended);
    return code;
}

/* Returns false if there are fewer calls. */
static bool strike(const scenario *s, fail_how how, long at)
{
    static const char *const hows[] = {"",       "end",       "EIO",
                                       "ENOSPC", "full disk", "short"};
    char what[128];
    uint64_t old = make_folder(s);
    snprintf(what, sizeof what, "%s, %s at call %ld", s->name, hows[how], at);
    set_lacks(s);
    int code = how == FAIL_CRASH ? run_apart(s, how, at, what)
                                 : run_struck(s, how, at);
    if (how != FAIL_CRASH)
        remove_own_locks();
    go_on(s, old, code == SAVED || code == NOT_REACHED, at % 5 == 0, what);
    set_lacks(NULL);
    return code != NOT_REACHED;
}

static void survives(fail_how how, size_t n_scenarios)
{
    long n_all = 0;
    for (size_t i = 0; i < n_scenarios; i++) {
        long at = 0;
        /* Only every third call where few cases run: sanitizers make process
         * starts slow. */
        while (strike(&scenarios[i], how, at) && !test_state.bad)
            at += FEW_CASES ? 3 : 1;
        CHECK_MSG(at > 20, "%s: only %ld calls", scenarios[i].name, at);
        n_all += at;
    }
    printf("%ld calls\n", n_all);
}

static void ends_at_each_call(void)
{
    survives(FAIL_CRASH, N_SCENARIOS);
}

static void each_call_fails(void)
{
    survives(FAIL_EIO, 3);
}

static void each_call_finds_no_room(void)
{
    survives(FAIL_ENOSPC, 2);
}

static void there_is_no_room_from_a_call_on(void)
{
    survives(FAIL_NO_SPACE, 2);
}

static void each_write_is_cut(void)
{
    survives(FAIL_SHORT, 2);
}

/* --- sync order ----------------------------------------------------------- */

static bool lies_in(const char *path, const char *parent)
{
    size_t n = strlen(parent);
    return strncmp(path, parent, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static void parent_of(const char *path, char *out, size_t size)
{
    snprintf(out, size, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
}

/* Returns the first event with this kind and path in [from, to), or -1. */
static int first_event(int from, int to, const char *kinds, const char *path)
{
    for (int i = from; i < to; i++)
        if (strchr(kinds, call_events[i].what) &&
            strcmp(call_events[i].path, path) == 0)
            return i;
    return -1;
}

/* Checks that data are on disk before they are published under a name: files'
 * bytes, folders' entries. */
static void check_synced_before(int at)
{
    const call_event *e = &call_events[at];
    char parent[200];
    for (int i = 0; i < at; i++) {
        const call_event *w = &call_events[i];
        const char *made = w->what == 'r' || w->what == 'l' ? w->to : w->path;
        if (w->what == 'w' && lies_in(w->path, e->path))
            CHECK_MSG(first_event(i, at, "s", w->path) >= 0,
                      "%s becomes %s before %s is synced", e->path, e->to,
                      w->path);
        parent_of(made, parent, sizeof parent);
        if (strchr("crlm", w->what) && strcmp(made, e->path) != 0 &&
            lies_in(parent, e->path))
            CHECK_MSG(first_event(i, at, "s", parent) >= 0,
                      "%s becomes %s before %s, with %s, is synced", e->path,
                      e->to, parent, made);
    }
}

/* Checks that names are on disk before any other removal. */
static void check_synced_after(int at)
{
    const call_event *e = &call_events[at];
    char parent[200];
    parent_of(e->to, parent, sizeof parent);
    int synced = first_event(at, n_call_events, "s", parent);
    CHECK_MSG(synced >= 0, "%s is renamed to %s, and %s never synced", e->path,
              e->to, parent);
    for (int i = at; i < synced; i++)
        CHECK_MSG(call_events[i].what != 'u' ||
                      strstr(call_events[i].path, "-lock"),
                  "%s is removed before %s, with %s, is synced",
                  call_events[i].path, parent, e->to);
}

static void check_order(const scenario *s)
{
    lh_error err;
    char parent[200];
    int n_names = 0;
    make_folder(s);
    set_lacks(s);
    n_call_events = 0;
    CHECK_OK(whole_run(s, &err), err);
    set_lacks(NULL);
    CHECK(n_call_events < MOST_EVENTS);
    for (int i = 0; i < n_call_events; i++) {
        const call_event *e = &call_events[i];
        if (e->what == 'm') {
            parent_of(e->path, parent, sizeof parent);
            CHECK(first_event(i, n_call_events, "s", parent) >= 0);
        }
        if (!strchr("rxl", e->what))
            continue;
        n_names++;
        check_synced_before(i);
        /* A lock need not survive a power loss. */
        if (!strstr(e->to, ".longhaul-lock"))
            check_synced_after(i);
    }
    CHECK_MSG(n_names >= 4, "%s: %d names", s->name, n_names);
    n_call_events = -1;
}

static void syncs_in_order(void)
{
    for (size_t i = 0; i < N_SCENARIOS; i++)
        check_order(&scenarios[i]);
}

int main(void)
{
    team_layers = 1;
    before = open_team(1, 2, 2, false);
    after = open_team(1, 2, 2, false);
    reader = open_team(1, 1, 1, false);
    if (!mkdtemp(folder))
        return 1;
    team_step(&before);
    settle(&before);
    team_step(&after);
    team_step(&after);
    settle(&after);
    RUN(syncs_in_order);
    RUN(ends_at_each_call);
    RUN(each_call_fails);
    RUN(each_call_finds_no_room);
    RUN(there_is_no_room_from_a_call_on);
    RUN(each_write_is_cut);
    remove_all(folder);
    close_team(&before);
    close_team(&after);
    close_team(&reader);
    return test_summary();
}
