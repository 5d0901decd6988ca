import os
import sys
import time

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path

settings.configure(DEBUG=True, ROOT_URLCONF=__name__, SECRET_KEY="not secret", ALLOWED_HOSTS=["*"])


def fast(request):
    return HttpResponse("generation=%s\n" % os.environ.get("SUPERVISORD_GENERATION"))


def slow(request):
    time.sleep(0.3)
    return fast(request)


urlpatterns = [path("", fast), path("slow", slow)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
