"""The transcription server: REST, OpenAI's form of it, WebSocket, and a web page.

The process that answers requests imports no torch. Recordings are decoded in processes of their own, which have a limit
of memory and can be killed, and models run in processes of their own, which are replaced if they crash.
"""
