/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the layers in Python. The process gets the job on standard input and
 * prints a profile or an error; its other messages go to standard error. */
#define _POSIX_C_SOURCE 200809L
#include "profile_torch.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Maximum argument count of the Python process; maximum size of its output, in
 * bytes. */
enum { MOST_ARGUMENTS = 16, MOST_BYTES = 16 << 20 };

/* Returns the Python interpreter's path or name: --python, else the
 * environment's LONGHAUL_PYTHON, else python3. */
static const char *get_python(const torch_profile *how)
{
    const char *named = getenv("LONGHAUL_PYTHON");
    if (how->python)
        return how->python;
    return named && *named ? named : "python3";
}

/* Creates an unnamed file with the job, positioned at its start. */
static lh_status create_job_file(cli *c, const lh_job *job, FILE **out)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_job_format(job, &text, &len, &c->err));
    FILE *file = tmpfile();
    bool written = file != NULL;
    for (size_t done = 0; written && done < len;) {
        const ssize_t now = write(fileno(file), text + done, len - done);
        written = now > 0;
        done += written ? (size_t)now : 0;
    }
    written = written && lseek(fileno(file), 0, SEEK_SET) == 0;
    lh_text_free(text);
    if (!written) {
        const int why = errno;
        if (file)
            fclose(file);
        return cli_error(c, LH_EIO, "cannot write a file for the job: %s",
                         strerror(why));
    }
    *out = file;
    return LH_OK;
}

/* Starts `arguments[0]`, the interpreter, with standard input from descriptor
 * `in` and standard output to the pipe `out`; *pid is its process. */
static lh_status start_python(cli *c, char *const *arguments, int in,
                              const int out[2], pid_t *pid)
{
    posix_spawn_file_actions_t files;
    int failed = posix_spawn_file_actions_init(&files);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&files, in, 0);
        if (failed == 0)
            failed = posix_spawn_file_actions_adddup2(&files, out[1], 1);
        if (failed == 0)
            failed = posix_spawn_file_actions_addclose(&files, out[0]);
        if (failed == 0)
            failed = posix_spawnp(pid, arguments[0], &files, NULL, arguments,
                                  environ);
        posix_spawn_file_actions_destroy(&files);
    }
    if (failed != 0)
        return cli_error(c, LH_EIO,
                         "cannot run %s: %s; set --python to a Python with "
                         "longhaul and torch",
                         arguments[0], strerror(failed));
    return LH_OK;
}

/* Reads all output of the process from descriptor `from`, NUL-terminated;
 * *text is owned by the caller. */
static lh_status read_all(cli *c, int from, char **text, size_t *len)
{
    size_t room = 1 << 16;
    ssize_t got = 1;
    *len = 0;
    *text = malloc(room + 1);
    while (*text && got != 0) {
        got = read(from, *text + *len, room - *len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || room > MOST_BYTES)
            return cli_error(c, LH_EIO, "cannot read the profile");
        *len += (size_t)got;
        if (*len == room) {
            char *more = realloc(*text, (room *= 2) + 1);
            if (!more)
                return cli_no_memory(c);
            *text = more;
        }
    }
    if (!*text)
        return cli_no_memory(c);
    (*text)[*len] = '\0';
    return LH_OK;
}

/* Parses the output from the measuring script, run by interpreter `python`: a
 * profile into *out, or an error, which is returned. `status`: from waitpid().
 */
static lh_status parse_printed(cli *c, const char *python, int status,
                               const char *text, size_t len, lh_profile **out)
{
    json_t *map = json_loadb(text, len, 0, NULL);
    const char *error = json_string_value(json_object_get(map, "error"));
    lh_status made = LH_OK;
    if (error)
        made = cli_error(c, LH_EUNSUPPORTED, "%s", error);
    else if (!map || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        made = cli_error(c, LH_EUNSUPPORTED,
                         "%s failed to measure the layers%s; set --python to a "
                         "Python with longhaul and torch",
                         python,
                         WIFSIGNALED(status) ? ": terminated by a signal" : "");
    else
        made = lh_profile_parse(text, len, "profile", out, &c->err);
    json_decref(map);
    return made;
}

/* Runs the measuring script (`arguments`) with standard input from descriptor
 * `in`, and parses the profile that it prints into *out; fails if the script
 * fails. */
static lh_status run_python(cli *c, char *const *arguments, int in,
                            lh_profile **out)
{
    int ends[2], status = 0;
    pid_t pid = 0;
    char *text = NULL;
    size_t len = 0;
    if (pipe(ends) != 0)
        return cli_error(c, LH_EIO, "cannot make a pipe: %s", strerror(errno));
    lh_status made = start_python(c, arguments, in, ends, &pid);
    close(ends[1]);
    if (made == LH_OK)
        made = read_all(c, ends[0], &text, &len);
    close(ends[0]);
    if (pid > 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    if (made == LH_OK)
        made = parse_printed(c, arguments[0], status, text, len, out);
    free(text);
    return made;
}

lh_status cli_profile_torch(cli *c, const lh_job *job, const torch_profile *how,
                            lh_profile **out)
{
    const struct {
        const char *name, *value;
    } given[] = {{"--modules", how->modules},
                 {"--tensor", how->tensor},
                 {"--micro-batch", how->micro_batch}};
    char repeats[16];
    const char *arguments[MOST_ARGUMENTS] = {
        get_python(how), "-m", "longhaul.torch", "--repeats", repeats};
    uint32_t n = 5;
    FILE *file = NULL;
    snprintf(repeats, sizeof repeats, "%u", how->repeats);
    for (uint32_t i = 0; i < CLI_COUNT_OF(given); i++)
        if (given[i].value) {
            arguments[n++] = given[i].name;
            arguments[n++] = given[i].value;
        }
    CLI_TRY(create_job_file(c, job, &file));
    lh_status status =
        run_python(c, (char *const *)arguments, fileno(file), out);
    fclose(file);
    return status;
}
