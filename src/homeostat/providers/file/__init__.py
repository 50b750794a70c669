"""Files and directories on this host, kept as declared.

    apiVersion: files.homeostat.dev/v1
    kind: File
    metadata: {name: app-settings}
    spec:
      path: /etc/app/settings.ini
      mode: "0640"
      owner: app
      template: |
        [db]
        password = {{ db.password }}
      values:
      - {name: db, secret: app-db}

`File(allowed=[…])` touches nothing but what lies below the roots it is given, and follows no symbolic link on the way. A file is
replaced as a whole: written beside, made durable, renamed. What a status shows of content is its digest.

Read `kind` for what can be declared, `content` for what a declaration says a file holds, `tree` for how the disk is read and
written, `hints` and `inotify` for how changes are noticed at once, `provider` for the whole.
"""

from homeostat.providers.file.kind import FileSpec, FileState
from homeostat.providers.file.provider import File

__all__ = ["File", "FileSpec", "FileState"]
